"""Run folders and their files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml

from .. import __version__
from ..config import PrecisionName, Settings, resolve
from ..config.renames import with_new_names
from ..errors import DamagedRun, UserError
from ..plugins import explain_changed_plugins
from ..storage import (
    HOLDER,
    LOCK,
    append_line,
    locked,
    make_folder,
    read_tensors,
    save_tensors,
    temporary_path,
    truncate,
    write_text,
)
from ..yamltext import Raw, flatten, read_config
from .checkpoints import Checkpoints
from .stored import check_result, check_result_sha256

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, RESULT, METRICS, MODEL = "config.yaml", "result.json", "metrics.jsonl", "model.safetensors"
EXEMPLARS, TASKS, ORIGIN, MESSAGES = "exemplars.safetensors", "tasks", "origin.json", "messages.txt"
NOT_IDENTIFYING = ("cscct_version", "runtime", "checkpoint")  # sections that may change when a run is resumed
PRECISION = "numerics.precision"
State = Literal["free", "unfinished", "finished"]


class RunFolder:
    """The files of one run. Files are replaced atomically.

    Args:
        path: The folder. It need not exist.
    """

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")

    def config(self) -> Raw:
        """Return the content of `config.yaml`. Settings of older versions get their current names.

        Raises:
            UserError: If the folder has no `config.yaml`.
            DamagedRun: If the file cannot be read.
        """
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} is not a run folder: it has no {CONFIG}.")
        try:
            raw = with_new_names(read_config(self.path / CONFIG))
        except UserError as error:
            raise DamagedRun(f"The run in {self.path} is damaged. {error}") from error
        if not isinstance(raw.get("cscct_version"), str):
            raise DamagedRun(
                f"{self.path / CONFIG} is damaged: cscct_version is missing. Delete the folder {self.path}, or choose "
                "another with --out."
            )
        return raw

    def settings(self) -> Settings:
        """Return the settings of a run that this version can continue.

        Raises:
            UserError: If another version created the run.
            DamagedRun: If the settings cannot be read.
        """
        raw = self.config()
        self._check_version(raw)
        try:
            settings = resolve(config=raw)
        except UserError as error:
            raise DamagedRun(f"The settings in {self.path / CONFIG} cannot be used: {error}") from error
        self.check_plugins(raw, settings.plugins)
        return settings

    def check_plugins(self, config: Raw, current: Mapping[str, str]) -> None:
        """Raise an error if the run was made with plugins other than the current ones, given by their hashes."""
        recorded = config.get("plugins", {})
        if not isinstance(recorded, Mapping):
            raise DamagedRun(
                f"{self.path / CONFIG} is damaged: plugins is not a mapping. Choose another folder with --out."
            )
        reason = explain_changed_plugins(recorded, current)
        if reason is not None:
            raise UserError(
                f"The run in {self.path} cannot be continued or reused: {reason}, or start a new run in another folder "
                "(--out)."
            )

    def _check_version(self, raw: Raw) -> None:
        version = str(raw.get("cscct_version"))
        if version.split(".")[:2] != __version__.split(".")[:2]:
            raise UserError(
                f"The run in {self.path} was created by cscct {version}, and this is {__version__}: it can be loaded "
                "and reported, but not continued. Start a new run in another folder (--out)."
            )

    def check_usable(self) -> bool:
        """Return whether the folder contains a run. Raise a `UserError` if it contains anything else."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: choose a folder with --out.")
        if not self.path.exists():
            return False
        if (self.path / CONFIG).is_file():
            return True
        expected = {LOCK, HOLDER, ORIGIN, MESSAGES}
        expected |= {temporary_path(Path(name)).name for name in (CONFIG, ORIGIN, HOLDER)}
        if any(path.name not in expected for path in self.path.iterdir()):
            raise UserError(
                f"The folder {self.path} contains files that are not part of a run: choose another with --out."
            )
        return False

    def state(self, settings: Settings) -> State:
        """Return whether the folder is free, or contains an unfinished or finished run with these settings.

        Args:
            settings: Complete settings. `NOT_IDENTIFYING` sections, such as device and threads, are not compared.

        Raises:
            UserError: If the folder contains a run with other settings, or other files.
            DamagedRun: If a file of the run is damaged.
        """
        if not self.check_usable():
            return "free"
        stored, wanted = self.config(), settings.dump()
        self._check_version(stored)
        self.check_plugins(stored, settings.plugins)
        missing = [key for key in wanted if key not in stored]
        if missing:
            raise DamagedRun(
                f"{self.path / CONFIG} is damaged: {missing[0]} is missing. Delete the folder {self.path}, or choose "
                "another with --out."
            )
        differing = differences(stored, wanted)
        if differing:
            more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
            raise UserError(
                f"The folder {self.path} already contains another run: {differing[0]}{more}. Choose another folder "
                "with --out, or delete this one."
            )
        return "finished" if self.result().get("status") == "finished" else "unfinished"

    def precision(self) -> PrecisionName:
        """Return the precision that the run recorded, or `auto` if it has not been started."""
        with suppress(UserError):  # reported by `state`
            recorded = flatten(self.config()).get(PRECISION)
            return next((name for name in get_args(PrecisionName) if name == recorded), "auto")
        return "auto"

    def create(self, settings: Settings) -> None:
        """Write `config.yaml` and remove all files of an earlier attempt."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.checkpoints.clear()
        for name in (METRICS, MODEL, EXEMPLARS, RESULT):
            (self.path / name).unlink(missing_ok=True)
        if os.path.lexists(self.path / TASKS):  # without a config, check_usable refuses a folder with tasks
            for path in make_folder(self.path / TASKS).glob("[0-9][0-9][0-9]*.safetensors"):
                path.unlink()
        write_text(self.path / CONFIG, yaml.safe_dump(settings.dump(), sort_keys=False, allow_unicode=True))

    def remember_origin(self, data_dir: Path | None, plugins: Sequence[Path]) -> None:
        """Store the paths of data and plugins as a hint for `cscct resume`. They do not identify the run."""
        origin = {
            "data_dir": str(data_dir.resolve()) if data_dir else None,
            "plugins": [str(plugin.resolve()) for plugin in plugins],
        }
        write_text(self.path / ORIGIN, json.dumps(origin, indent=1) + "\n")

    def origin(self) -> tuple[Path | None, list[Path]]:
        """Return data folder and plugins from `remember_origin`, or `(None, [])` if they cannot be read."""
        if not (self.path / ORIGIN).is_file():
            return None, []
        try:
            stored = json.loads((self.path / ORIGIN).read_text(encoding="utf-8"))
            plugins = [Path(plugin) for plugin in stored["plugins"]]
            return (Path(stored["data_dir"]) if stored["data_dir"] else None), plugins
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None, []

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Replace `result.json`."""
        write_text(self.path / RESULT, json.dumps(result, indent=1) + "\n")

    def result(self) -> dict[str, Any]:
        """Return the result so far, or an empty dictionary. Raise `DamagedRun` if the file is damaged."""
        path = self.path / RESULT
        if not path.is_file():
            return {}
        try:
            loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            check_result(loaded)
            check_result_sha256(loaded)
        except (OSError, ValueError, RecursionError, ArithmeticError) as error:
            raise DamagedRun(
                f"{path} is damaged ({error}): delete it. The run then continues from its last checkpoint, or restarts."
            ) from error
        return loaded

    def metrics_size(self) -> int:
        """Return the size of `metrics.jsonl` in bytes."""
        path = self.path / METRICS
        return path.stat().st_size if path.is_file() else 0

    def cut_metrics(self, size: int) -> None:
        """Shorten `metrics.jsonl` to its size at a checkpoint: later epochs are trained again.

        If the file is shorter than that, only an incomplete last line is removed.
        """
        if size < self.metrics_size():
            truncate(self.path / METRICS, size)
        elif size > self.metrics_size() and (self.path / METRICS).is_file():
            truncate(self.path / METRICS, (self.path / METRICS).read_bytes().rfind(b"\n") + 1)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Append a line to `metrics.jsonl`."""
        append_line(self.path / METRICS, json.dumps(record))

    def save_task(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """Store the tensors of a task that reports read. File names have three digits, so that they sort."""
        make_folder(self.path / TASKS)
        save_tensors(self._task(index), tensors)

    def task(self, index: int) -> dict[str, Tensor]:
        """Return the tensors from `save_task`. Raise a `ValueError` if they cannot be read."""
        return read_tensors(self._task(index))[0]

    def _task(self, index: int) -> Path:
        return self.path / TASKS / f"{index:03}.safetensors"

    def save_model(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Store the weights and predictors of a finished run."""
        save_tensors(self.path / MODEL, tensors, metadata)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Store a checkpoint and remove all but the newest two."""
        self.checkpoints.save(tensors, state)

    def clear_checkpoints(self) -> None:
        """Remove all checkpoints."""
        self.checkpoints.clear()

    def clear_stale_checkpoints(self) -> None:
        """Remove checkpoints of a finished run, left by a process that was killed before it removed them."""
        if self.checkpoints.folder.is_dir():
            with suppress(UserError, OSError), locked(self.path):  # the process that holds the lock removes them
                self.clear_checkpoints()


class ReadOnlyRunFolder(RunFolder):
    """A run folder in a distributed process other than rank 0, which does all the writing."""

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
    """Return the settings that identify a run, as plain values."""
    return {key: value for key, value in settings.dump().items() if key not in NOT_IDENTIFYING}


def differences(stored: Raw, wanted: Raw) -> list[str]:
    """Return a clause for each setting that identifies a run and differs."""
    before, after = (
        flatten({key: value for key, value in raw.items() if key not in NOT_IDENTIFYING}) for raw in (stored, wanted)
    )
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if "auto" in (before.get(PRECISION), after.get(PRECISION)):  # chosen when the run starts, and recorded
        names = [name for name in names if name != PRECISION]
    return [f"{name} was {before.get(name)} and is now {after.get(name)}" for name in names]


def changed_data(folder: RunFolder) -> str:
    """Return the message for a dataset that is not the one a run started with."""
    return (
        f"The dataset has changed since the run in {folder.path} started, and stored exemplars are indices into it: "
        "restore the old data, or start a new run in another folder (--out)."
    )
