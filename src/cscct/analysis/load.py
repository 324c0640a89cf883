"""Find, read and check stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..config import Settings
from ..config.renames import with_new_names
from ..errors import DamagedRun, UserError
from ..methods import split_method
from ..metrics import summarize
from ..runs.folder import CONFIG, METRICS, RunFolder
from ..structs import Part
from ..yamltext import Raw, merge, read_config
from .settings import effective

Array = npt.NDArray[Any]
DEPTH = 2  # levels of folders to search: a comparison has its runs one level down, a sweep of comparisons two


class MissingDataError(Exception):
    """Data that a figure needs is missing or damaged. The report omits the figure and gives this reason."""


@dataclass(frozen=True)
class StoredRun:
    """A run as stored in its folder.

    Attributes:
        path: Folder of the run.
        settings: Contents of config.yaml.
        result: Contents of result.json.
    """

    path: Path
    settings: dict[str, Any]
    result: dict[str, Any]

    @property
    def method(self) -> str:
        """Name of the method, such as `lucir+cscct`."""
        return str(self.result["method"])

    @property
    def base(self) -> str:
        """Name of the method without add-ons."""
        return split_method(self.method)[0]

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def headline(self) -> str:
        """Name of the predictor that the method is evaluated with."""
        return str(self.result["headline"])

    @property
    def finished(self) -> bool:
        return bool(self.result["status"] == "finished")

    @property
    def matrix(self) -> list[list[float]]:
        """Accuracies in percent: a row after each task, a column for each task so far."""
        rows: list[list[float]] = self.result["matrix"][self.headline]
        return rows

    @property
    def summary(self) -> dict[str, float | None]:
        """Value of each metric in percent; None if it is not defined."""
        return self.metrics(self.headline)

    def metrics(self, predictor: str, part: Part = "test") -> dict[str, float | None]:
        """Return the metrics of a predictor on test or validation images; empty if the run has none."""
        evaluated = self.result if part == "test" else self.result.get(part, {})
        stored: dict[str, float | None] = evaluated.get("summary", {}).get(predictor, {})
        if not stored or "harmonic_mean" in stored:
            return stored
        computed = summarize(evaluated["matrix"][predictor], evaluated["task_sizes"])  # a run of an older version
        return {**stored, "harmonic_mean": computed["harmonic_mean"]}

    @property
    def curve(self) -> list[float]:
        """Accuracy on all classes seen so far, after each task."""
        return [float(task["accuracy"][self.headline]) for task in self.result["tasks"]]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of each finished task."""
        return tuple(len(task["classes"]) for task in self.result["tasks"])

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of learning."""
        return tuple(str(name) for task in self.result["tasks"] for name in task["classes"])

    @property
    def planned(self) -> int:
        """Number of tasks, finished or not."""
        return len(self.result["task_sizes"])

    def progress(self) -> str:
        """Return a sentence about a run that is not finished."""
        state = "failed" if self.result["status"] == "failed" else "is not finished"
        return f"{self.path} {state}: {len(self.sizes)} of {self.planned} tasks are complete."

    def tensors(self, task: int) -> dict[str, Array]:
        """Return the arrays stored for a task.

        Raises:
            MissingDataError: If the file is missing or damaged.
        """
        try:
            tensors = RunFolder(self.path).task(task)
        except ValueError as error:
            raise MissingDataError(
                f"{self.path / 'tasks'} has no readable file for task {task + 1}: {error}."
            ) from error
        # NumPy supports neither bfloat16 nor 8-bit floats.
        small = {name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.itemsize < 4}
        return {name: (tensor.float() if name in small else tensor).numpy() for name, tensor in tensors.items()}

    def confusion(self, task: int) -> Array:
        """Return the confusion matrix (true classes x predicted classes) after a task, as counts."""
        seen = sum(self.sizes[: task + 1])
        counts = self.tensors(task).get(f"confusion.{self.headline}")
        if counts is None or counts.shape != (seen, seen):
            raise MissingDataError(f"{self.path} has no confusion matrix of {seen} classes for task {task + 1}.")
        return counts

    def epochs(self) -> list[dict[str, Any]]:
        """Return the records of metrics.jsonl. An incomplete last line, left by a killed run, is skipped."""
        path = self.path / METRICS
        if not path.is_file():  # reading a named pipe would block
            raise MissingDataError(f"{path} does not exist.")
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise MissingDataError(f"{path} cannot be read.") from error
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                records.append({**record, "place": (int(record["task"]), str(record["stage"]), int(record["epoch"]))})
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if number < len(lines):
                    raise MissingDataError(f"{path} is damaged in line {number}.") from error
        return records


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return all run folders in `paths`, each once, searching two levels down.

    Raises:
        UserError: If a path does not exist, is a file or contains no run.
    """
    runs: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"The folder {path} does not exist.")
        if not path.is_dir():
            raise UserError(f"{path} is a file; a report is made from run folders.")
        contained = _runs_in(path, DEPTH)
        if not contained:
            raise UserError(f"{path} and the folders in it contain no run of cscct.")
        for run in contained:
            runs.setdefault(run.resolve(), run)
    return list(runs.values())


def _runs_in(folder: Path, depth: int) -> list[Path]:
    config = folder / CONFIG
    if config.is_file() and b"cscct_version" in config.read_bytes():
        return [folder]
    if depth == 0:
        return []
    return [run for below in sorted(folder.iterdir()) if below.is_dir() for run in _runs_in(below, depth - 1)]


def read_runs(paths: Sequence[Path], warn: Callable[[str], None]) -> list[StoredRun]:
    """Read the runs in these folders, each once. Runs without a finished task are skipped with a warning.

    Raises:
        UserError: If no run has a finished task, or a run is damaged.
    """
    runs: dict[str, StoredRun] = {}
    for path in paths:
        run = read_run(path)
        if not run.sizes:
            warn(f"{path} is skipped: it has no finished task yet.")
            continue
        key = json.dumps([effective(run.settings), run.seed, run.result.get("data_sha256")], sort_keys=True)
        if key in runs:  # counted twice, it would make the spread over seeds too small
            keep, drop = (run, runs[key]) if len(run.sizes) > len(runs[key].sizes) else (runs[key], run)
            warn(f"{drop.path} is skipped: {keep.path} is the same run with the same seed.")
            run = keep
        runs[key] = run
    if not runs:
        raise UserError("The report would be empty: none of the runs has finished its first task.")
    return list(runs.values())


def read_run(path: Path) -> StoredRun:
    """Read the run in a folder.

    Raises:
        UserError: If a file is missing, damaged or inconsistent with the others.
    """
    folder = RunFolder(path)
    settings = stored_settings(path)
    try:
        result = folder.result()
    except DamagedRun as error:
        raise UserError(f"{error} To report the other runs, omit {path}.") from error
    return StoredRun(path, settings, result or {"tasks": []})


def stored_settings(path: Path) -> Raw:
    """Return the values in config.yaml under their current names, with defaults for newer settings.

    Names are not looked up, so runs of plugins and of other versions are readable.

    Raises:
        UserError: If the file is missing or damaged.
    """
    defaults = Settings(method="", dataset="").dump()
    settings = merge(Settings(method="", dataset="").dump(), with_new_names(read_config(path / CONFIG)))
    for key, value in defaults.items():
        if isinstance(value, str | dict) and not isinstance(settings[key], type(value)):
            raise UserError(f"{path / CONFIG} is damaged: {key} is {settings[key]!r:.60}. Omit {path}.")
    return settings
