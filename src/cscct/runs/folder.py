"""Run folders: what is in them, and how it gets there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from .. import __version__
from ..config import Settings, resolve
from ..errors import UserError
from ..yamltext import parse_yaml, read_config
from .checkpoints import Checkpoints
from .files import LOCK, load_tensors, save_tensors, write_text

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, RESULT, METRICS, MODEL = "config.yaml", "result.json", "metrics.jsonl", "model.safetensors"
TASKS = "tasks"
State = Literal["free", "unfinished", "finished"]


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")

    def settings(self) -> Settings:
        """Those that the run was started with."""
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} holds no run: there is no {CONFIG} in it.")
        raw = read_config(self.path / CONFIG)
        made_by = str(raw.get("cscct_version"))
        if made_by.split(".")[:2] != __version__.split(".")[:2]:
            raise UserError(
                f"The run in {self.path} was made by cscct {made_by}, and this is {__version__}: start it anew."
            )
        return resolve(config=raw)

    def metrics_size(self) -> int:
        path = self.path / METRICS
        return path.stat().st_size if path.is_file() else 0

    def cut_metrics(self, size: int) -> None:
        """Forget the epochs that a checkpoint does not know of: they will be lived again."""
        if size < self.metrics_size():
            os.truncate(self.path / METRICS, size)

    def check_usable(self) -> bool:
        """Whether there is a run in it; a folder of something else is refused."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; the output must be a folder of its own.")
        if not self.path.exists() or not any(path.name != LOCK for path in self.path.iterdir()):
            return False
        if not (self.path / CONFIG).is_file():
            raise UserError(f"The folder {self.path} holds other files; choose another with --out.")
        return True

    def state(self, settings: Settings, *, same_runtime: bool = True) -> State:
        """`free`, or, where this very run is there already, `finished` or `unfinished`; another run is an error.

        same_runtime: whether other threads or another device make it another run.
        """
        if not self.check_usable():
            return "free"
        config = self.path / CONFIG
        open_ = ("checkpoint",) if same_runtime else ("checkpoint", "runtime")
        there, wanted = parse_yaml(config.read_text(), str(config)), settings.dump()
        if _without(there, open_) != _without(wanted, open_):
            raise UserError(
                f"The folder {self.path} already holds another run; choose another with --out, or delete it."
            )
        return "finished" if self.result().get("status") == "finished" else "unfinished"

    def create(self, settings: Settings) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.checkpoints.clear()
        for name in (METRICS, MODEL, RESULT):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / TASKS, ignore_errors=True)
        write_text(self.path / CONFIG, yaml.safe_dump(settings.dump(), sort_keys=False, allow_unicode=True))

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_text(self.path / RESULT, json.dumps(result, indent=1) + "\n")

    def result(self) -> dict[str, Any]:
        path = self.path / RESULT
        if not path.is_file():
            return {}
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        with (self.path / METRICS).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def save_task(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """What reports read of a task; numbers with three digits, so that a listing is in order."""
        (self.path / TASKS).mkdir(exist_ok=True)
        save_tensors(self._task(index), tensors)

    def task(self, index: int) -> dict[str, Tensor]:
        return load_tensors(self._task(index))

    def _task(self, index: int) -> Path:
        return self.path / TASKS / f"{index:03}.safetensors"

    def save_model(self, tensors: Mapping[str, Tensor]) -> None:
        save_tensors(self.path / MODEL, tensors)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self.checkpoints.save(tensors, state)

    def clear_checkpoints(self) -> None:
        self.checkpoints.clear()


class ReadOnlyRunFolder(RunFolder):
    """A run folder in the hands of a process that does not lead: writing is left to the one that does."""

    def create(self, settings: Settings) -> None: ...

    def write_result(self, result: Mapping[str, Any]) -> None: ...

    def append_metrics(self, record: Mapping[str, Any]) -> None: ...

    def cut_metrics(self, size: int) -> None: ...

    def save_task(self, index: int, tensors: Mapping[str, Tensor]) -> None: ...

    def save_model(self, tensors: Mapping[str, Tensor]) -> None: ...

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None: ...

    def clear_checkpoints(self) -> None: ...


def _without(dump: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """A config without what may change between two sittings of one run."""
    return {key: value for key, value in dump.items() if key not in keys}
