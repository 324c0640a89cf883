"""One run, from settings and a dataset to a folder of results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ..config import Settings
from ..data import ArrayImages, Dataset
from ..errors import Interrupted, RunFailed, UserError, Warn
from ..learn.build import build_learner, build_stream
from ..learn.device import explain_torch_error, is_available
from ..learn.distributed import ProcessGroup, explain_lost_processes, launch
from ..learn.learner import Learner, Resume
from ..learn.predict import Evaluation
from ..learn.protocol import complete
from ..plugins import explain_plugin_error
from ..structs import Task
from .checkpointing import CheckpointWriter
from .checkpoints import Checkpoint
from .files import explain_os_errors, locked, weights_sha256
from .first_tasks import FirstTaskCache, first_task_fingerprint
from .folder import ReadOnlyRunFolder, RunFolder, State, changed_data
from .listeners import Listener, Listeners, MetricsLog
from .record import Result, ResultRecord

Stop = Callable[[], bool]
Origin = tuple[Path | None, Sequence[Path]]


def never() -> bool:
    return False


def ignore(_: str) -> None:
    """The default for warnings: nothing is done with them."""


def execute(
    settings: Settings,
    dataset: Dataset,
    folder: RunFolder,
    listener: Listener | None = None,
    warn: Warn = ignore,
    first_tasks: FirstTaskCache | None = None,
    stop: Stop = never,
    origin: Origin = (None, ()),
) -> Result:
    """Carry out one run, or what is left of it; of a finished one, only read the result.

    The folder must be free or hold a run with the same settings. listener: callbacks. warn: takes sentences.
    first_tasks: first tasks that other runs have trained. stop: asked after every step; when it says so, a checkpoint
    is written and the run interrupted. origin: the folder of the data and the plugins, remembered for whoever continues
    the run.
    """
    settings = complete(settings, dataset)
    runtime = settings.runtime
    group = launch(runtime.devices, runtime.nodes, runtime.device)
    if not group.is_leader:
        follower = ReadOnlyRunFolder(folder.path)
        return _Execution(settings, dataset, follower, Listener(), ignore, first_tasks, stop, group).run()
    with explain_os_errors(folder.path):
        folder.check_usable()
        folder.path.mkdir(parents=True, exist_ok=True)
        with locked(folder.path):  # whether there is anything to do is decided by whoever holds the lock
            return _Execution(
                settings, dataset, folder, listener or Listener(), warn, first_tasks, stop, group, origin
            ).run()


@dataclass
class _Execution:
    """The part of one process in a run: rank 0 writes and reports, the others only compute."""

    settings: Settings  # complete
    dataset: Dataset
    folder: RunFolder
    listener: Listener
    warn: Warn
    first_tasks: FirstTaskCache | None
    stop: Stop
    group: ProcessGroup
    origin: Origin = (None, ())

    def run(self) -> Result:
        data = self.dataset.fingerprint()
        with explain_lost_processes():
            state, self.settings, saved = self.group.broadcast(self._find)
            return self._stored_result(data) if state == "finished" else self._train(data, saved)

    def _find(self) -> tuple[State, Settings, Checkpoint | None]:
        """How far the run is, and its newest checkpoint. One that has begun goes on with the threads it began with."""
        state = self.folder.state(self.settings)
        if state != "unfinished":
            return state, self.settings, None
        began, now = self.folder.settings(), self.settings.runtime
        device = began.runtime.device
        if not is_available(device):  # or auto: planned, not yet begun
            device = now.device
        threads = began.runtime.threads or now.threads
        runtime = replace(began.runtime, device=device, threads=threads, devices=now.devices, nodes=now.nodes)
        return state, began.model_copy(update={"runtime": runtime}), self.folder.checkpoints.latest(self.warn)

    def _stored_result(self, data: str) -> Result:
        result = self.folder.result()
        if result.get("data_sha256", data) != data:
            raise UserError(changed_data(self.folder))
        self.folder.clear_checkpoints()  # of a process that was killed after its last write
        self.listener.found_finished(result, self.folder.path)
        return result

    def _train(self, data: str, saved: Checkpoint | None) -> Result:
        stream = build_stream(self.settings, self.dataset, self.warn)
        learner = build_learner(self.settings, self.dataset, stream, self.group, self.warn)
        record = ResultRecord(self.settings, stream, self.folder, first_task_fingerprint(self.settings, data), data)
        every = self.settings.checkpoint.minutes * 60
        writer = CheckpointWriter(learner, record, self.folder, every, self.stop, self.warn)
        if saved is None:
            self.folder.create(self.settings)
            self.folder.remember_origin(*self.origin)
        first, resume = (0, None) if saved is None else writer.restore(saved)
        record.write("running")
        self.listener.run_started(self.settings, stream.tasks, sum(map(learner.planned_images, stream.tasks)))
        self.listener.skipped(writer.images_done(first, resume))
        try:
            for task in stream.tasks[first:]:
                self._learn(task, writer, resume)
                resume = None
        except (Interrupted, UserError, OSError):
            raise
        except Exception as error:
            sentence = str(error) if isinstance(error, RunFailed) else _explain(error)
            record.write("failed", error=sentence or f"{type(error).__name__}: {error}")
            if sentence is None or isinstance(error, RunFailed):
                raise
            raise RunFailed(sentence) from error
        weights = {name: tensor.contiguous() for name, tensor in learner.whole_network().state_dict().items()}
        self.folder.save_model({**weights, **predictor_tensors(learner)}, self._metadata(record))
        result = record.write("finished", weights_sha256=weights_sha256(weights))
        self.folder.clear_checkpoints()
        self.group.broadcast(lambda: None)  # nobody goes on before everything is written
        self.listener.run_finished(result, self.folder.path)
        return result

    def _learn(self, task: Task, writer: CheckpointWriter, resume: Resume | None) -> None:
        """One task: learned, evaluated, recorded."""
        learner, record = writer.learner, writer.record
        writer.begin(task)
        shared = self.first_tasks if task.is_first and self.settings.network.trained else None
        ready = None
        if shared is not None and resume is None:
            ready = self.group.broadcast(lambda: shared.get(record.first_task, self.warn))
        learner.learn(task, Listeners([MetricsLog(self.folder), self.listener]), ready, writer.step, resume)
        if shared is not None and ready is None and self.group.is_leader:
            shared.put(record.first_task, learner.network.state_dict())
        evaluation = learner.evaluate(task)
        self.folder.save_task(task.index, findings(learner, task, evaluation))
        entry = record.add(task, evaluation.confusion, writer.seconds())
        record.write("running")
        writer.task_done(task)
        self.listener.skipped(learner.planned_images(task) if ready is not None else 0)
        self.listener.task_finished(entry)

    def _metadata(self, record: ResultRecord) -> dict[str, str]:
        """What a program needs to use the weights without the data."""
        names = [name for entry in record.tasks for name in entry["classes"]]
        images = self.dataset.train.images
        size = list(images.pixels.shape[2:]) if isinstance(images, ArrayImages) else None
        return {
            "format": "cscct",
            "class_names": json.dumps(names),
            "channels": str(self.dataset.channels),
            "image_size": json.dumps(size),  # of images that were in memory, height and width
        }


def _explain(error: Exception) -> str | None:
    return explain_torch_error(error) or explain_plugin_error(error)


def predictor_tensors(learner: Learner) -> dict[str, Tensor]:
    """The predictors on the network's features."""
    found = {"class_means": learner.means}
    for name, predictor in learner.linear.items():
        found |= {f"{name}.{key}": tensor for key, tensor in predictor.tensors().items()}
    return found


def findings(learner: Learner, task: Task, evaluation: Evaluation) -> dict[str, Tensor]:
    """What a report wants to know of a task beyond its accuracies; after the last one, where the test images of the
    first task's classes lie."""
    found = {f"confusion.{name}": counts.to(torch.int32) for name, counts in evaluation.confusion.items()}
    if not task.is_first:
        found["similarity"] = learner.similarity
    if task is learner.stream.tasks[-1]:
        _, found["labels"] = learner.stream.seen_test(learner.stream.tasks[0].n_seen)
        found["features"] = evaluation.features[: len(found["labels"])].clone()
    return found
