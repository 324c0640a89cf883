"""Networks after the first task, shared by runs that train it identically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Settings
from ..errors import Warn
from ..specs import NetworkSpec
from ..storage import CHECKSUM, json_sha256, read_tensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor


# Settings of `train` that were added later: with these values they are not part of a fingerprint.
LATER = {
    "drop_last": False,
    "sampler": "shuffle",
    "views": 1,
    "pool": "all",
    "part": "all",
    "teacher": "previous",
    "reset": "none",
    "loss": None,
}


class FirstTaskCache:
    """Weights after the first task, by fingerprint.

    Args:
        folder: Folder of the files. It need not exist.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, fingerprint: str, warn: Warn) -> dict[str, Tensor] | None:
        """Return the weights, or None if they are missing or, with a warning, damaged."""
        path = self._path(fingerprint)
        if not path.is_file():
            return None
        try:
            tensors, metadata = read_tensors(path)
        except ValueError:
            metadata = {}
        if CHECKSUM not in metadata:
            warn(f"The shared first task {path} is damaged. It is trained again.")
            return None
        return tensors

    def put(self, fingerprint: str, tensors: Mapping[str, Tensor]) -> None:
        """Store weights under a fingerprint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_tensors(self._path(fingerprint), tensors)

    def _path(self, fingerprint: str) -> Path:
        return self.folder / f"{fingerprint}.safetensors"


def first_task_fingerprint(settings: Settings, data: str) -> str:
    """Return a hash of everything that the training of the first task depends on, and of nothing else.

    Args:
        settings: Complete settings of the run.
        data: Fingerprint of the dataset.
    """
    dump, network, runtime = settings.dump(), settings.network, settings.runtime
    train = {key: value for key, value in dump["train"].items() if key not in LATER or value != LATER[key]}
    del train["old_fraction"]  # of exemplars, which the first task does not have
    if settings.train.sampler in ("mixed", "replay"):  # the same as shuffle without exemplars
        del train["sampler"]
    if not settings.data.transform.augment:
        del dump["data"]["transform"]["augment"]
    parts = {
        "version": dump["cscct_version"],
        "content": data,
        "dataset": settings.dataset,
        "seed": settings.seed,
        "base": settings.protocol.first,
        "data": {key: value for key, value in dump["data"].items() if key != "validation" or value is not None},
        "network": [network.backbone, network.depth, network.head, network.proxies_per_class, network.relu_head],
        "loss": {term.name: dump["loss"][term.name] for term in settings.terms if term.first_task},
        "train": train,
        "device": [runtime.device, runtime.threads, runtime.devices, runtime.nodes, settings.numerics.precision],
        "compiled": settings.numerics.compile in ("all", "cuda-graphs"),
    }
    defaults = NetworkSpec()
    keys = ("pretrained", "train_from", "cached_views", "batch_norm", "scale", "imprint_first", "expand")
    later = {key: getattr(network, key) for key in keys}
    if changed := {key: value for key, value in later.items() if value != getattr(defaults, key)}:
        parts["network_more"] = changed | ({"imprint": network.imprint} if network.imprint_first else {})
    if settings.memory.held_back:  # these images are excluded from training, also in the first task
        parts["held_back"] = settings.memory.held_back_of(settings.protocol.first or 0)
    if settings.protocol.names:  # they define the class order
        parts["classes"] = settings.protocol.names[: settings.protocol.first]
    if not network.train_backbone:  # no weights to share
        parts["method"] = settings.method
    if settings.active_extension is not None:
        parts["extension"] = dump["extension"]
    stages = {name: stage for name, stage in dump["stages"].items() if stage and stage["first_task"]}
    if stages or settings.train.pool == "balanced":
        parts["stages"], parts["memory"] = stages, dump["memory"]
    if settings.plugins:
        parts["plugins"] = settings.plugins
    return json_sha256(parts)[:24]
