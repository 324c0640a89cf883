"""Stored runs: found in folders, read and checked. Only stored files are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..config import Settings
from ..config.layers import merge, with_new_names
from ..errors import DamagedRun, UserError
from ..methods import split_method
from ..runs.folder import CONFIG, METRICS, RunFolder
from ..yamltext import Raw, read_config
from .settings import effective

Array = npt.NDArray[Any]
DEPTH = 2  # a comparison holds its runs one level down, a sweep of comparisons two


class Missing(Exception):
    """Something that a figure needs is not there or damaged; the page says so and goes on."""


@dataclass(frozen=True)
class Run:
    """A run as its folder holds it."""

    path: Path
    settings: dict[str, Any]  # as in config.yaml
    result: dict[str, Any]

    @property
    def method(self) -> str:
        return str(self.result["method"])

    @property
    def base(self) -> str:
        return split_method(self.method)[0]

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def headline(self) -> str:
        return str(self.result["headline"])

    @property
    def finished(self) -> bool:
        return bool(self.result["status"] == "finished")

    @property
    def matrix(self) -> list[list[float]]:
        rows: list[list[float]] = self.result["matrix"][self.headline]
        return rows

    @property
    def summary(self) -> dict[str, float | None]:
        found: dict[str, float | None] = self.result["summary"][self.headline]
        return found

    @property
    def curve(self) -> list[float]:
        """Accuracy on all classes seen, after each task."""
        return [float(task["accuracy"][self.headline]) for task in self.result["tasks"]]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Classes of each task that is done."""
        return tuple(len(task["classes"]) for task in self.result["tasks"])

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names, in order of learning."""
        return tuple(str(name) for task in self.result["tasks"] for name in task["classes"])

    @property
    def planned(self) -> int:
        return len(self.result["task_sizes"])

    def progress(self) -> str:
        """What to say of a run that is not finished."""
        state = "failed" if self.result["status"] == "failed" else "is unfinished"
        return f"{self.path} {state}: {len(self.sizes)} of {self.planned} tasks are done."

    def tensors(self, task: int) -> dict[str, Array]:
        try:
            tensors = RunFolder(self.path).task(task)
        except ValueError as error:
            raise Missing(f"{self.path / 'tasks'} lacks a readable file of task {task + 1}: {error}.") from error
        # NumPy has no bfloat16 and no floats of 8 bits.
        small = {name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.itemsize < 4}
        return {name: (tensor.float() if name in small else tensor).numpy() for name, tensor in tensors.items()}

    def confusion(self, task: int) -> Array:
        """Counts after a task: rows are true classes, columns predicted ones, by the run's own prediction."""
        seen = sum(self.sizes[: task + 1])
        counts = self.tensors(task).get(f"confusion.{self.headline}")
        if counts is None or counts.shape != (seen, seen):
            raise Missing(f"{self.path} holds no confusion of {seen} classes for task {task + 1}.")
        return counts

    def epochs(self) -> list[dict[str, Any]]:
        """Lines of metrics.jsonl. Half a line at the end is what a killed run leaves, and is passed over."""
        path = self.path / METRICS
        if not path.is_file():  # a pipe would be waited for
            raise Missing(f"{path} is not there.")
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Missing(f"{path} cannot be read.") from error
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                records.append({**record, "place": (int(record["task"]), str(record["stage"]), int(record["epoch"]))})
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if number < len(lines):
                    raise Missing(f"{path} is damaged in line {number}.") from error
        return records


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run folders; a folder that holds several, up to two levels down, stands for all of them."""
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"There is no folder {path}.")
        if not path.is_dir():
            raise UserError(f"{path} is a file; a report is made from run folders.")
        inside = _runs_in(path, DEPTH)
        if not inside:
            raise UserError(f"{path} holds no run of cscct, and neither do the folders in it.")
        for run in inside:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _runs_in(folder: Path, depth: int) -> list[Path]:
    config = folder / CONFIG
    if config.is_file() and b"cscct_version" in config.read_bytes():
        return [folder]
    if depth == 0:
        return []
    return [run for below in sorted(folder.iterdir()) if below.is_dir() for run in _runs_in(below, depth - 1)]


def read_runs(paths: Sequence[Path], warn: Callable[[str], None]) -> list[Run]:
    """The runs in these folders, each once; those without a finished task are left out with a warning."""
    runs: dict[str, Run] = {}
    for path in paths:
        run = read_run(path)
        if not run.sizes:
            warn(f"{path} is left out: no task of it is done yet.")
            continue
        same = json.dumps([effective(run.settings), run.seed, run.result.get("data_sha256")], sort_keys=True)
        if same in runs:  # counted twice, it would make the spread over seeds too small
            keep, drop = (run, runs[same]) if len(run.sizes) > len(runs[same].sizes) else (runs[same], run)
            warn(f"{drop.path} is left out: {keep.path} is the same run, same seed included.")
            run = keep
        runs[same] = run
    if not runs:
        raise UserError("There is nothing to report: none of the runs has finished its first task.")
    return list(runs.values())


def read_run(path: Path) -> Run:
    """The run in a folder; one whose files do not fit together is refused."""
    folder = RunFolder(path)
    settings = stored_settings(path)
    try:
        result = folder.result()
    except DamagedRun as error:
        raise UserError(f"{error} To report the others, leave {path} out.") from error
    return Run(path, settings, result or {"tasks": []})


def stored_settings(path: Path) -> Raw:
    """The values in config.yaml under their present names, with defaults for settings that did not exist then.

    Nothing is looked up or validated, so runs of a plugin and of another version are read without it.
    """
    defaults = Settings(method="", dataset="").dump()
    settings = merge(Settings(method="", dataset="").dump(), with_new_names(read_config(path / CONFIG)))
    for key, value in defaults.items():
        if isinstance(value, str | dict) and not isinstance(settings[key], type(value)):
            raise UserError(f"{path / CONFIG} is damaged: {key} in it is {settings[key]!r:.60}. Leave {path} out.")
    return settings
