"""Execution of one run: from settings and a dataset to a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ..config import Settings
from ..data import ArrayImages, Dataset
from ..data.inputs import ImageFormat
from ..errors import Interrupted, RunFailed, UserError, Warn
from ..learn.build import build_learner, build_stream
from ..learn.device import explain_torch_error, is_available
from ..learn.distributed import ProcessGroup, explain_lost_processes, launch
from ..learn.evaluation import Evaluation
from ..learn.learner import Learner
from ..learn.plan import Resume
from ..learn.protocol import complete, with_precision
from ..learn.state import first_task_tensors
from ..learn.trial import try_parts
from ..plugins import explain_plugin_error, plugin_errors_explained
from ..storage import DISK_FULL, UNUSABLE, created, locked, tensors_sha256
from ..structs import Task
from .checkpointing import CheckpointWriter
from .checkpoints import Checkpoint
from .exemplars import collect_exemplars, save_exemplars
from .first_tasks import FirstTaskCache, first_task_fingerprint
from .folder import ReadOnlyRunFolder, RunFolder, State, changed_data
from .listeners import Listener, Listeners, MetricsLog
from .record import Result, ResultRecord
from .tracking import tracking

Stop = Callable[[], bool]
Origin = tuple[Path | None, Sequence[Path]]


def never() -> bool:
    """Return False: the default for `stop`."""
    return False


def ignore(_: str) -> None:
    """Discard a warning: the default for `warn`."""


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
    """Execute a run, continue an unfinished one, or read the result of a finished one.

    Args:
        settings: Settings of the run. What depends on the data or the machine is completed.
        dataset: The dataset.
        folder: A free folder, or the folder of a run with the same settings.
        listener: Callbacks.
        warn: Called with each warning.
        first_tasks: Weights after the first task, shared with other runs.
        stop: Called after every step. If it returns True, a checkpoint is written and `Interrupted` is raised.
        origin: Folder of the data and plugins, stored as a hint for `cscct resume`.

    Returns:
        The content of `result.json`.

    Raises:
        UserError: If the folder cannot be used, or the settings do not fit the dataset.
        RunFailed: If the run cannot be continued, for example because the disk is full.
        Interrupted: If `stop` returned True.
    """
    settings = complete(with_precision(settings, folder.precision()), dataset)
    runtime = settings.runtime
    group = launch(runtime.devices, runtime.nodes, runtime.device)
    if not group.is_leader:
        follower = ReadOnlyRunFolder(folder.path)
        return _Execution(settings, dataset, follower, Listener(), ignore, first_tasks, stop, group).run()
    with _os_errors_explained(folder.path):
        folder.check_usable()
        # The lock is held before the state is read: another process may just have finished the run
        with created(folder.path), locked(folder.path), tracking(runtime.log, folder.path) as trackers:
            listeners = Listeners([listener or Listener(), *trackers])
            return _Execution(settings, dataset, folder, listeners, warn, first_tasks, stop, group, origin).run()


@dataclass
class _Execution:
    """The execution of a run in one process. Rank 0 writes and reports, other ranks only compute."""

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
        """Return the state of the run, its settings and its newest checkpoint.

        A resumed run keeps its threads and its precision.
        """
        state = self.folder.state(self.settings)
        if state != "unfinished":
            return state, self.settings, None
        stored, current = self.folder.settings(), self.settings.runtime
        device = stored.runtime.device
        if not is_available(device):  # or auto: planned, not started yet
            device = current.device
        threads = stored.runtime.threads or current.threads
        runtime = replace(stored.runtime, device=device, threads=threads, devices=current.devices, nodes=current.nodes)
        stored = with_precision(stored.model_copy(update={"runtime": runtime}), self.settings.numerics.precision)
        return state, stored, self.folder.checkpoints.latest(self.warn)

    def _stored_result(self, data: str) -> Result:
        result = self.folder.result()
        if result.get("data_sha256", data) != data:
            raise UserError(changed_data(self.folder))
        self.folder.clear_checkpoints()  # left by a process that was killed after its last write
        self.listener.found_finished(result, self.folder.path)
        return result

    def _train(self, data: str, saved: Checkpoint | None) -> Result:
        stream = build_stream(self.settings, self.dataset, self.warn)
        with plugin_errors_explained():
            learner = build_learner(self.settings, self.dataset, stream, self.group, self.warn)
        record = ResultRecord(self.settings, stream, self.folder, first_task_fingerprint(self.settings, data), data)
        every = self.settings.checkpoint.minutes * 60
        writer = CheckpointWriter(learner, record, self.folder, every, self.stop, self.warn)
        if saved is None:
            try_parts(learner)
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
        except SystemExit as error:  # of a plugin: the command would seem to have succeeded
            reason = f"A plugin ended the process (SystemExit {error.code}): repair the plugin."
            record.write("failed", error=reason)
            raise RunFailed(reason) from error
        except Exception as error:
            message = str(error) if isinstance(error, RunFailed) else _explain(error)
            record.write("failed", error=message or f"{type(error).__name__}: {error}")
            if message is None or isinstance(error, RunFailed):
                raise
            raise RunFailed(message) from error
        weights = {name: tensor.contiguous() for name, tensor in learner.whole_network().state_dict().items()}
        self.folder.save_model({**weights, **predictor_tensors(learner)}, self._metadata(record))
        self._save_exemplars(learner)
        result = record.write("finished", weights_sha256=tensors_sha256(weights))
        self.folder.clear_checkpoints()
        self.group.broadcast(lambda: None)  # no process continues before everything is written
        self.listener.run_finished(result, self.folder.path)
        return result

    def _learn(self, task: Task, writer: CheckpointWriter, resume: Resume | None) -> None:
        """Learn, evaluate and record a task."""
        learner, record = writer.learner, writer.record
        writer.begin(task)
        shared = self.first_tasks if task.is_first and self.settings.network.train_backbone else None
        ready = None
        if shared is not None and resume is None:
            ready = self.group.broadcast(lambda: shared.get(record.first_task, self.warn))
        learner.learn(task, Listeners([MetricsLog(self.folder), self.listener]), ready, writer.step, resume)
        if shared is not None and ready is None and self.group.is_leader:
            shared.put(record.first_task, first_task_tensors(learner))
        evaluation = learner.evaluate(task)
        validation = learner.evaluate(task, "validation") if learner.stream.validation else None
        self.folder.save_task(task.index, task_tensors(learner, task, evaluation))
        entry = record.add(task, evaluation, validation, writer.seconds())
        record.write("running")
        writer.task_done(task)
        self.listener.skipped(learner.planned_images(task) if ready is not None else 0)
        self.listener.task_finished(entry)

    def _save_exemplars(self, learner: Learner) -> None:
        """Store what further learning needs. Only the leading process writes."""
        if self.group.is_leader:
            format = ImageFormat(self.settings.data.transform, self.dataset.channels, self._image_size())
            exemplars = collect_exemplars(learner, self.dataset, format, self.settings.runtime.memory_mb)
            save_exemplars(self.folder.path, exemplars)

    def _image_size(self) -> tuple[int, int] | None:
        """Height and width of images in memory."""
        images = self.dataset.train.images
        return tuple(images.pixels.shape[2:]) if isinstance(images, ArrayImages) else None  # type: ignore[return-value]

    def _metadata(self, record: ResultRecord) -> dict[str, str]:
        """Return what is needed to use the weights without the data."""
        names = [name for entry in record.tasks for name in entry["classes"]]
        return {
            "format": "cscct",
            "class_names": json.dumps(names),
            "channels": str(self.dataset.channels),
            "image_size": json.dumps(self._image_size()),
        }


@contextmanager
def _os_errors_explained(folder: Path) -> Iterator[None]:
    """Turn a full disk or an unusable folder into an error with a message for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise RunFailed(
                f"Nothing more can be written to {folder} ({error.strerror}). Free some space, then continue with "
                f"`cscct resume {folder}`: the last checkpoint is complete."
            ) from error
        if error.errno in UNUSABLE:
            raise UserError(
                f"The folder {folder} cannot be used for results ({error.strerror}): choose another with --out."
            ) from error
        raise


def _explain(error: Exception) -> str | None:
    """Return a message for a known error, or None."""
    return explain_torch_error(error) or explain_plugin_error(error)


def predictor_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return the tensors of all predictors that read features, as `model.safetensors` contains them."""
    tensors = {"class_means": learner.means}
    for name, predictor in learner.linear.items():
        tensors |= {f"{name}.{key}": tensor for key, tensor in predictor.tensors().items()}
    return tensors


def task_tensors(learner: Learner, task: Task, evaluation: Evaluation) -> dict[str, Tensor]:
    """Return what reports read of a task: confusion matrices and class similarities.

    After the last task, also labels and features of the test images of the first task's classes.
    """
    tensors = {f"confusion.{name}": counts.to(torch.int32) for name, counts in evaluation.confusion.items()}
    if not task.is_first:
        tensors["similarity"] = learner.similarity
    if task is learner.stream.tasks[-1]:
        _, tensors["labels"] = learner.stream.seen_images(learner.stream.tasks[0].n_seen)
        tensors["features"] = evaluation.features[: len(tensors["labels"])].clone()
    return tensors
