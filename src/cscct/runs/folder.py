"""Run folders: what is in them, and how it gets there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from .. import __version__
from ..config import Settings, resolve
from ..config.layers import with_new_names
from ..errors import DamagedRun, UserError
from ..yamltext import Raw, read_config
from .checkpoints import Checkpoints
from .files import (
    HOLDER,
    LOCK,
    append_line,
    check_result_sha256,
    locked,
    own_folder,
    read_tensors,
    save_tensors,
    temporary_name,
    truncate,
    write_text,
)
from .stored import check_result

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, RESULT, METRICS, MODEL = "config.yaml", "result.json", "metrics.jsonl", "model.safetensors"
TASKS, ORIGIN, MESSAGES = "tasks", "origin.json", "messages.txt"
NOT_IDENTIFYING = ("cscct_version", "runtime", "checkpoint")  # sections that may change between two sittings of one run
State = Literal["free", "unfinished", "finished"]


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")

    def config(self) -> Raw:
        """What `config.yaml` holds, with settings of older versions under their present names."""
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} holds no run: there is no {CONFIG} in it.")
        try:
            raw = with_new_names(read_config(self.path / CONFIG))
        except UserError as error:
            raise DamagedRun(f"The run in {self.path} is damaged. {error}") from error
        if not isinstance(raw.get("cscct_version"), str):
            raise DamagedRun(
                f"{self.path / CONFIG} is damaged: it does not say which version of cscct made it. Delete the folder "
                f"{self.path}, or choose another with --out."
            )
        return raw

    def settings(self) -> Settings:
        """Those that the run was started with, for a run that this version can continue."""
        raw = self.config()
        self._check_version(raw)
        try:
            return resolve(config=raw)
        except UserError as error:
            raise DamagedRun(f"The settings in {self.path / CONFIG} cannot be used: {error}") from error

    def _check_version(self, raw: Raw) -> None:
        made_by = str(raw.get("cscct_version"))
        if made_by.split(".")[:2] != __version__.split(".")[:2]:
            raise UserError(
                f"The run in {self.path} was made by cscct {made_by}, and this is {__version__}: it can be loaded and "
                "reported, but not continued; start it anew in another folder (--out)."
            )

    def check_usable(self) -> bool:
        """Whether there is a run in it; a folder of something else is refused."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; the output must be a folder of its own.")
        if not self.path.exists():
            return False
        if (self.path / CONFIG).is_file():
            return True
        own = {LOCK, HOLDER, ORIGIN, MESSAGES}
        own |= {temporary_name(Path(name)).name for name in (CONFIG, ORIGIN, HOLDER)}
        if any(path.name not in own for path in self.path.iterdir()):
            raise UserError(f"The folder {self.path} holds other files; choose another with --out.")
        return False

    def state(self, settings: Settings) -> State:
        """`free`, or, where a run with the same settings is there, `finished` or `unfinished`; another run is an error.
        Another device or number of threads does not make it another run."""
        if not self.check_usable():
            return "free"
        there, wanted = self.config(), settings.dump()
        self._check_version(there)
        missing = [key for key in wanted if key not in there]
        if missing:
            raise DamagedRun(
                f"{self.path / CONFIG} is damaged: it lacks {missing[0]}. Delete the folder {self.path}, or choose "
                "another with --out."
            )
        differing = differences(there, wanted)
        if differing:
            more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
            raise UserError(
                f"The folder {self.path} already holds another run: {differing[0]}{more}. Choose another folder with "
                "--out, or delete this one."
            )
        return "finished" if self.result().get("status") == "finished" else "unfinished"

    def create(self, settings: Settings) -> None:
        """Begin a run: the config, and nothing of an earlier attempt."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.checkpoints.clear()
        for name in (METRICS, MODEL, RESULT):
            (self.path / name).unlink(missing_ok=True)
        if os.path.lexists(self.path / TASKS):  # before there is a config, a folder with it would not be taken for ours
            for old in own_folder(self.path / TASKS).glob("[0-9][0-9][0-9]*.safetensors"):
                old.unlink()
        write_text(self.path / CONFIG, yaml.safe_dump(settings.dump(), sort_keys=False, allow_unicode=True))

    def remember_origin(self, data_dir: Path | None, plugins: Sequence[Path]) -> None:
        """Where the data and plugins were, as a hint for `cscct resume`; no part of what identifies a run."""
        origin = {
            "data_dir": str(data_dir.resolve()) if data_dir else None,
            "plugins": [str(plugin.resolve()) for plugin in plugins],
        }
        write_text(self.path / ORIGIN, json.dumps(origin, indent=1) + "\n")

    def origin(self) -> tuple[Path | None, list[Path]]:
        """Data folder and plugins as `remember_origin` stored them; nothing where that cannot be read."""
        if not (self.path / ORIGIN).is_file():
            return None, []
        try:
            stored = json.loads((self.path / ORIGIN).read_text(encoding="utf-8"))
            plugins = [Path(one) for one in stored["plugins"]]
            return (Path(stored["data_dir"]) if stored["data_dir"] else None), plugins
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None, []

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_text(self.path / RESULT, json.dumps(result, indent=1) + "\n")

    def result(self) -> dict[str, Any]:
        """The result so far; empty where there is none."""
        path = self.path / RESULT
        if not path.is_file():
            return {}
        try:
            loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            check_result(loaded)
            check_result_sha256(loaded)
        except (OSError, ValueError, RecursionError, ArithmeticError) as error:
            raise DamagedRun(
                f"{path} is damaged ({error}): delete it, and the run goes on from its last checkpoint, or starts anew."
            ) from error
        return loaded

    def metrics_size(self) -> int:
        path = self.path / METRICS
        return path.stat().st_size if path.is_file() else 0

    def cut_metrics(self, size: int) -> None:
        """Forget the epochs that a checkpoint does not know of: they will be trained again. Of a file that lost some of
        those it knows, half a line at the end is cut off."""
        if size < self.metrics_size():
            truncate(self.path / METRICS, size)
        elif size > self.metrics_size() and (self.path / METRICS).is_file():
            truncate(self.path / METRICS, (self.path / METRICS).read_bytes().rfind(b"\n") + 1)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        append_line(self.path / METRICS, json.dumps(record))

    def save_task(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """What reports read of a task; numbers with three digits, so that a listing is in order."""
        own_folder(self.path / TASKS)
        save_tensors(self._task(index), tensors)

    def task(self, index: int) -> dict[str, Tensor]:
        """What `save_task` stored. A `ValueError` says why that cannot be read."""
        return read_tensors(self._task(index))[0]

    def _task(self, index: int) -> Path:
        return self.path / TASKS / f"{index:03}.safetensors"

    def save_model(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        save_tensors(self.path / MODEL, tensors, metadata)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self.checkpoints.save(tensors, state)

    def clear_checkpoints(self) -> None:
        self.checkpoints.clear()

    def clear_stale_checkpoints(self) -> None:
        """Of a finished run: those that a process left which was killed just before it removed them."""
        if self.checkpoints.folder.is_dir():
            with suppress(UserError, OSError), locked(self.path):  # whoever holds the lock removes them itself
                self.clear_checkpoints()


class ReadOnlyRunFolder(RunFolder):
    """A run folder in a process that does not lead: the leading process writes."""

    def create(self, settings: Settings) -> None: ...

    def remember_origin(self, data_dir: Path | None, plugins: Sequence[Path]) -> None: ...

    def write_result(self, result: Mapping[str, Any]) -> None: ...

    def append_metrics(self, record: Mapping[str, Any]) -> None: ...

    def cut_metrics(self, size: int) -> None: ...

    def save_task(self, index: int, tensors: Mapping[str, Tensor]) -> None: ...

    def save_model(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None: ...

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None: ...

    def clear_checkpoints(self) -> None: ...


def identity(settings: Settings) -> Raw:
    """The settings that identify a run, as plain values."""
    return {key: value for key, value in settings.dump().items() if key not in NOT_IDENTIFYING}


def differences(there: Raw, wanted: Raw) -> list[str]:
    """Settings that identify a run and are not the same, each in words."""
    one, other = (
        _flat({key: value for key, value in raw.items() if key not in NOT_IDENTIFYING}) for raw in (there, wanted)
    )
    names = dict.fromkeys([*one, *other])
    return [
        f"{name} is {one.get(name)} there, not {other.get(name)}" for name in names if one.get(name) != other.get(name)
    ]


def _flat(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in raw.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def changed_data(folder: RunFolder) -> str:
    """What to say where the data is not that of the run."""
    return (
        f"The dataset has changed since the run in {folder.path} began, and its exemplars are indices into it: put the "
        "old data back, or start a new run in another folder (--out)."
    )
