"""First tasks that several runs have in common, trained once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Settings
from ..errors import Warn
from ..specs import NetworkSpec
from .files import CHECKSUM, read_tensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor


class FirstTaskCache:
    """Networks after their first task, by what determines them: runs that share it train it once."""

    def __init__(self, folder: Path):
        self.folder = folder

    def has(self, fingerprint: str) -> bool:
        return self._path(fingerprint).is_file()

    def get(self, fingerprint: str, warn: Warn) -> dict[str, Tensor] | None:
        """The weights, if they are there and whole; what is damaged is reported and trained again."""
        path = self._path(fingerprint)
        if not path.is_file():
            return None
        try:
            tensors, metadata = read_tensors(path)
        except ValueError:
            metadata = {}
        if CHECKSUM not in metadata:
            warn(f"The shared first task {path} is damaged, and is trained again.")
            return None
        return tensors

    def put(self, fingerprint: str, tensors: Mapping[str, Tensor]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        save_tensors(self._path(fingerprint), tensors)

    def _path(self, fingerprint: str) -> Path:
        return self.folder / f"{fingerprint}.safetensors"


def first_task_fingerprint(settings: Settings, data: str) -> str:
    """A hash of everything that the first task's training depends on, and of nothing else. data: the dataset's own."""
    dump, network, runtime = settings.dump(), settings.network, settings.runtime
    parts = {
        "version": dump["cscct_version"],
        "content": data,
        "dataset": settings.dataset,
        "seed": settings.seed,
        "base": settings.protocol.base,
        "data": dump["data"],
        "network": [network.backbone, network.depth, network.head, network.rows_per_class, network.relu_head],
        "loss": {term.name: dump["loss"][term.name] for term in settings.terms if term.first_task},
        "train": {key: value for key, value in dump["train"].items() if key != "drop_last" or value},
        "device": [runtime.device, runtime.threads, runtime.devices, runtime.nodes, settings.numerics.precision],
        "compiled": settings.numerics.compile == "all",
    }
    # Settings that came later, such as drop_last, are left out where they have their defaults: old keys stay valid.
    fresh = NetworkSpec()
    keys = ("pretrained", "train_from", "views", "batch_norm", "scale", "imprint_first")
    later = {key: getattr(network, key) for key in keys}
    if changed := {key: value for key, value in later.items() if value != getattr(fresh, key)}:
        parts["network_more"] = changed | ({"imprint": network.imprint} if network.imprint_first else {})
    if settings.memory.held_back:  # these images are not trained on, from the first task on
        parts["held_back"] = settings.memory.held_back_of(settings.protocol.base or 0)
    if not network.trained:  # nothing to share
        parts["method"] = settings.method
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
