"""One run from settings to a folder of results, and many runs that share what they can."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import __version__
from ..config import Settings
from ..data import Dataset, Stream
from ..errors import RunFailed
from ..learn.build import Warn, build_learner, build_stream
from ..learn.learner import Learner
from ..learn.loop import Listener
from ..learn.predict import HEADLINES
from ..metrics import cumulative, summarize
from ..structs import Task
from .store import FirstTasks, RunFolder, first_task_fingerprint, weights_sha256

Result = dict[str, Any]


class RunListener(Listener, Protocol):
    """Who watches a run."""

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None: ...

    def task_finished(self, entry: Mapping[str, Any], skipped_images: int) -> None: ...

    def run_finished(self, result: Result, folder: Path) -> None: ...


def execute(
    settings: Settings,
    dataset: Dataset,
    folder: RunFolder,
    listener: RunListener,
    warn: Warn,
    first_tasks: FirstTasks | None = None,
) -> Result:
    """Carry out one run. Settings must be complete; the folder must be free or hold this very run, unfinished."""
    stream = build_stream(settings, dataset, warn)
    learner = build_learner(settings, dataset, stream)
    folder.create(settings)
    record = _Record(settings, stream, folder)
    record.write("running")
    listener.run_started(settings, stream.tasks, sum(learner.planned_images(task) for task in stream.tasks))
    watcher = _Watcher(listener, folder)
    try:
        for task in stream.tasks:
            entry, skipped = _one_task(settings, learner, task, watcher, first_tasks, record)
            listener.task_finished(entry, skipped)
    except RunFailed as failure:
        record.write("failed", error=str(failure))
        raise
    tensors = final_tensors(learner)
    folder.save_model(tensors)
    result = record.write("finished", weights_sha256=weights_sha256(learner.network.state_dict()))
    listener.run_finished(result, folder.path)
    return result


def _one_task(
    settings: Settings,
    learner: Learner,
    task: Task,
    listener: Listener,
    first_tasks: FirstTasks | None,
    record: _Record,
) -> tuple[Mapping[str, Any], int]:
    started = time.perf_counter()
    ready, fingerprint = None, ""
    if first_tasks is not None and task.is_first:
        fingerprint = first_task_fingerprint(settings)
        ready = first_tasks.get(fingerprint)
    learner.learn(task, listener, ready)
    if fingerprint and first_tasks is not None and ready is None:
        first_tasks.put(fingerprint, learner.network.state_dict())
    entry = record.add(task, learner.evaluate(task), time.perf_counter() - started)
    record.write("running")
    return entry, learner.planned_images(task) if ready is not None else 0


def final_tensors(learner: Learner) -> dict[str, Tensor]:
    return {**learner.network.state_dict(), "class_means": learner.means}


class _Watcher:
    """Passes events on, and keeps the epochs' records in the folder."""

    def __init__(self, listener: Listener, folder: RunFolder):
        self.listener, self.folder = listener, folder
        self.step = listener.step

    def epoch(self, record: dict[str, Any]) -> None:
        self.folder.append_metrics(record)
        self.listener.epoch(record)


class _Record:
    """What becomes `result.json`. Apart from `seconds` and `environment`, a function of config and code."""

    def __init__(self, settings: Settings, stream: Stream, folder: RunFolder):
        self.settings, self.stream, self.folder = settings, stream, folder
        self.tasks: list[dict[str, Any]] = []
        self.matrix: dict[str, list[list[float]]] = {name: [] for name in HEADLINES}
        self.sizes = [stream.test_images(task.classes) for task in stream.tasks]

    def add(self, task: Task, rows: Mapping[str, list[float]], seconds: float) -> dict[str, Any]:
        for name, row in rows.items():
            self.matrix[name].append(row)
        entry = {
            "task": task.index,
            "classes": [self.stream.class_names[label] for label in task.classes],
            "accuracy": {name: cumulative(self.matrix[name], self.sizes)[-1] for name in HEADLINES},
            "seconds": seconds,
        }
        self.tasks.append(entry)
        return entry

    def write(self, status: str, **more: str) -> Result:
        result: Result = {
            "status": status,
            "method": self.settings.method,
            "dataset": self.settings.dataset,
            "seed": self.settings.seed,
            "headline": self.settings.predict.headline,
            "tasks": self.tasks,
            "task_sizes": self.sizes,
            "matrix": self.matrix,
            "summary": {name: summarize(rows, self.sizes) for name, rows in self.matrix.items() if rows},
            "weights_sha256": None,
            **more,
            "environment": environment(self.settings),
        }
        self.folder.write_result(result)
        return result


def environment(settings: Settings) -> dict[str, Any]:
    return {
        "cscct": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": settings.runtime.device,
        "threads": settings.runtime.threads,
    }
