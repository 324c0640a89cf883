"""One run from settings to a folder of results, and many runs that share what they can."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import __version__
from ..config import Settings
from ..data import Dataset, Stream
from ..errors import Interrupted, RunFailed, UserError
from ..learn.build import Warn, build_learner, build_stream
from ..learn.distributed import ProcessGroup, explain_lost_processes, launch
from ..learn.learner import Learner, Resume
from ..learn.loop import Listener, MomentumBuffers, StagePosition
from ..learn.predict import HEADLINES, Evaluation, matrix_row
from ..metrics import cumulative, summarize
from ..structs import Task
from .checkpoints import Checkpoint
from .files import explain_full_disk, locked, weights_sha256
from .first_tasks import FirstTaskCache, first_task_fingerprint
from .folder import ReadOnlyRunFolder, RunFolder

Result = dict[str, Any]


class RunListener(Listener, Protocol):
    """Who watches a run."""

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None: ...

    def skipped(self, images: int) -> None: ...

    def task_finished(self, entry: Mapping[str, Any]) -> None: ...

    def run_finished(self, result: Result, folder: Path) -> None: ...


class NullListener:
    """Nobody watches; the folder tells how far a run is."""

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None: ...

    def skipped(self, images: int) -> None: ...

    def task_finished(self, entry: Mapping[str, Any]) -> None: ...

    def run_finished(self, result: Result, folder: Path) -> None: ...


def execute(
    settings: Settings,
    dataset: Dataset,
    folder: RunFolder,
    listener: RunListener,
    warn: Warn,
    first_tasks: FirstTaskCache | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Carry out one run, or what is left of it. Settings must be complete; the folder free or holding this very run.

    stop: asked after every step; when it says so, a checkpoint is written and the run interrupted.
    """
    runtime = settings.runtime
    group = launch(runtime.devices, runtime.nodes, runtime.device)
    if group.is_leader:
        return _execute(settings, dataset, folder, listener, warn, first_tasks, stop, group)
    return _execute(
        settings, dataset, ReadOnlyRunFolder(folder.path), NullListener(), lambda _: None, first_tasks, stop, group
    )


def _execute(
    settings: Settings,
    dataset: Dataset,
    folder: RunFolder,
    listener: RunListener,
    warn: Warn,
    first_tasks: FirstTaskCache | None,
    stop: Callable[[], bool],
    group: ProcessGroup,
) -> Result:
    """The part of one process: the leading one writes and speaks, the others compute along."""
    stream = build_stream(settings, dataset, warn)
    learner = build_learner(settings, dataset, stream, group)
    if group.is_leader:
        folder.path.mkdir(parents=True, exist_ok=True)
    hold = locked(folder.path) if group.is_leader else nullcontext()
    with hold, explain_full_disk(folder.path), explain_lost_processes():
        data = dataset.fingerprint()
        record = ResultRecord(settings, stream, folder, first_task_fingerprint(settings, data))
        checkpoints = CheckpointWriter(learner, record, folder, data, settings.checkpoint.minutes * 60, stop)
        first, resume = _restore_or_start(settings, folder, checkpoints, warn)
        record.write("running")
        listener.run_started(settings, stream.tasks, sum(learner.planned_images(task) for task in stream.tasks))
        listener.skipped(checkpoints.images_done(first, resume))
        try:
            for task in stream.tasks[first:]:
                entry, skipped = _one_task(
                    learner, task, _MetricsListener(listener, folder), first_tasks, checkpoints, resume
                )
                listener.skipped(skipped)
                listener.task_finished(entry)
                resume = None
        except RunFailed as failure:
            record.write("failed", error=str(failure))
            raise
        folder.save_model(final_tensors(learner))
        result = record.write("finished", weights_sha256=weights_sha256(learner.network.state_dict()))
        folder.clear_checkpoints()
    listener.run_finished(result, folder.path)
    return result


def _restore_or_start(
    settings: Settings, folder: RunFolder, checkpoints: CheckpointWriter, warn: Warn
) -> tuple[int, Resume | None]:
    """The task to begin with, and where in it an earlier process stood."""

    def read() -> Checkpoint | None:
        return folder.checkpoints.latest(warn) if folder.state(settings, same_runtime=False) == "unfinished" else None

    saved = checkpoints.learner.group.broadcast(read)
    if saved is None:
        folder.create(settings)
        return 0, None
    return checkpoints.restore(saved)


def _one_task(
    learner: Learner,
    task: Task,
    listener: Listener,
    first_tasks: FirstTaskCache | None,
    checkpoints: CheckpointWriter,
    resume: Resume | None,
) -> tuple[Mapping[str, Any], int]:
    """The entry in the record, and how many images did not have to be trained on."""
    checkpoints.begin(task)
    shared = first_tasks if task.is_first else None
    ready = None
    if shared is not None and resume is None:
        ready = learner.group.broadcast(lambda: shared.get(checkpoints.record.first_task))
    learner.learn(task, listener, ready, checkpoints.step, resume)
    if shared is not None and ready is None and learner.group.is_leader:
        shared.put(checkpoints.record.first_task, learner.network.state_dict())
    tested = learner.evaluate(task)
    checkpoints.folder.save_task(task.index, _findings(learner, task, tested))
    entry = checkpoints.record.add(task, tested.confusion, checkpoints.seconds())
    checkpoints.record.write("running")
    checkpoints.task_done(task)
    return entry, learner.planned_images(task) if ready is not None else 0


def _findings(learner: Learner, task: Task, tested: Evaluation) -> dict[str, Tensor]:
    """What a report wants to know of a task beyond its accuracies; after the last one, where the test images of the
    first task's classes lie."""
    found = {f"confusion.{name}": counts.to(torch.int32) for name, counts in tested.confusion.items()}
    if not task.is_first:
        found["similarity"] = learner.similarity
    if task is learner.stream.tasks[-1]:
        _, found["labels"] = learner.stream.seen_test(learner.stream.tasks[0].n_seen)
        found["features"] = tested.features[: len(found["labels"])].clone()
    return found


class CheckpointWriter:
    """Writes checkpoints when they are due, and reads them back."""

    def __init__(
        self,
        learner: Learner,
        record: ResultRecord,
        folder: RunFolder,
        data: str,
        every: float,
        stop: Callable[[], bool],
    ):
        self.learner, self.record, self.folder = learner, record, folder
        self.data, self.every, self.stop = data, every, stop
        self.task = 0
        self.spent = 0.0  # seconds in this task by earlier processes
        self.started = self.last = time.perf_counter()

    def begin(self, task: Task) -> None:
        self.task, self.started = task.index, time.perf_counter()

    def seconds(self) -> float:
        return self.spent + time.perf_counter() - self.started

    def step(self, stage: str, position: StagePosition, buffers: Callable[[], MomentumBuffers]) -> None:
        stopping = self.learner.group.any(self.stop())
        if stopping or time.perf_counter() - self.last >= self.every:
            held = buffers()
            momentum = {f"momentum.{i}": one for i, one in enumerate(held) if one is not None}
            self._save(self.task, momentum, {"name": stage, "position": asdict(position), "buffers": len(held)})
        if stopping:
            raise Interrupted(f"Stopped after a checkpoint. Go on with: cscct resume {self.folder.path}")

    def task_done(self, task: Task) -> None:
        self.spent = 0.0
        self.started = time.perf_counter()
        if task.index + 1 < len(self.learner.stream.tasks):
            self._save(task.index + 1, {}, None)

    def _save(self, task: int, momentum: Mapping[str, Tensor], stage: Mapping[str, Any] | None) -> None:
        state = {
            "task": task,
            "stage": stage,
            "seconds": self.seconds(),
            "exemplars": {str(label): ranked for label, ranked in self.learner.memory.exemplars.items()},
            "tasks": self.record.tasks,
            "matrix": self.record.matrix,
            "metrics_size": self.folder.metrics_size(),
            "data": self.data,
        }
        self.folder.save_checkpoint({**self.learner.tensors(), **momentum}, state)
        self.last = time.perf_counter()

    def restore(self, saved: Checkpoint) -> tuple[int, Resume | None]:
        tensors, state = saved
        if state["data"] != self.data:
            raise UserError(
                f"The dataset has changed since the run in {self.folder.path} began, and its exemplars are places in "
                "it: put the old data back, or start a new run."
            )
        self.learner.restore(tensors, {int(label): ranked for label, ranked in state["exemplars"].items()})
        self.record.tasks, self.record.matrix = state["tasks"], state["matrix"]
        self.folder.cut_metrics(state["metrics_size"])
        stage = state["stage"]
        self.spent = state["seconds"]
        if stage is None:
            return state["task"], None
        buffers = [tensors.get(f"momentum.{i}") for i in range(stage["buffers"])]
        return state["task"], Resume(stage["name"], StagePosition(**stage["position"]), buffers)

    def images_done(self, first: int, resume: Resume | None) -> int:
        """Training images behind us, for the progress display."""
        tasks = self.learner.stream.tasks
        done = sum(self.learner.planned_images(task) for task in tasks[:first])
        return done + (self.learner.images_until(tasks[first], resume) if resume is not None else 0)


def final_tensors(learner: Learner) -> dict[str, Tensor]:
    return {**learner.network.state_dict(), "class_means": learner.means}


class _MetricsListener:
    """Passes events on, and keeps the epochs' records in the folder."""

    def __init__(self, listener: Listener, folder: RunFolder):
        self.listener, self.folder = listener, folder
        self.step = listener.step

    def epoch(self, record: dict[str, Any]) -> None:
        self.folder.append_metrics(record)
        self.listener.epoch(record)


class ResultRecord:
    """What becomes `result.json`. Apart from `seconds` and `environment`, a function of config and code."""

    def __init__(self, settings: Settings, stream: Stream, folder: RunFolder, first_task: str):
        self.settings, self.stream, self.folder, self.first_task = settings, stream, folder, first_task
        self.tasks: list[dict[str, Any]] = []
        self.matrix: dict[str, list[list[float]]] = {name: [] for name in HEADLINES}
        self.sizes = [stream.test_images(task.classes) for task in stream.tasks]

    def add(self, task: Task, confusion: Mapping[str, Tensor], seconds: float) -> dict[str, Any]:
        for name, counts in confusion.items():
            self.matrix[name].append(matrix_row(counts, self.stream.tasks[: task.index + 1]))
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
            "first_task": self.first_task,  # the same for runs that may share it
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
