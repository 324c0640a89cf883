"""Checkpoints of a run: when they are written, their content, and restoring a learner from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from ..errors import Interrupted, UserError, Warn
from ..learn.learner import Learner
from ..learn.loop import OptimizerState, StagePosition
from ..learn.plan import Resume
from ..learn.state import restore_state, state_tensors
from ..optim import pack_state, unpack_state
from ..storage import tensors_sha256
from ..structs import Task
from .checkpoints import Checkpoint
from .folder import METRICS, RunFolder, changed_data, differences, identity
from .record import ResultRecord


class CheckpointWriter:
    """Writes checkpoints when they are due, and restores a learner.

    Args:
        learner: The learner of the run.
        record: The result of the run.
        folder: Folder of the run.
        every: Seconds between two checkpoints within a task.
        stop: Called after every step. If it returns True, a checkpoint is written and `Interrupted` is raised.
        warn: Called with each warning.
    """

    def __init__(
        self,
        learner: Learner,
        record: ResultRecord,
        folder: RunFolder,
        every: float,
        stop: Callable[[], bool],
        warn: Warn,
    ):
        self.learner, self.record, self.folder = learner, record, folder
        self.every, self.stop, self.warn = every, stop, warn
        frozen = learner.frozen
        # The weights of frozen stages are not in checkpoints.
        self.frozen = None if frozen is None else tensors_sha256(frozen.state_dict())
        self.task = 0
        self.spent = 0.0  # seconds in this task by earlier processes
        self.started = self.last = time.perf_counter()

    def begin(self, task: Task) -> None:
        self.task, self.started = task.index, time.perf_counter()

    def seconds(self) -> float:
        return self.spent + time.perf_counter() - self.started

    def step(self, stage: str, position: StagePosition, optimizer: Callable[[], OptimizerState]) -> None:
        """Called after each optimiser step."""
        stopping = self.learner.group.any(self.stop())
        if stopping or time.perf_counter() - self.last >= self.every:
            tensors: dict[str, Tensor] = {}
            packed = pack_state(optimizer(), tensors)
            self._save(self.task, tensors, {"name": stage, "position": asdict(position), "optimizer": packed})
        if stopping:
            self.learner.group.broadcast(lambda: None)  # no process ends before the checkpoint is written
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(f"Stopped after a checkpoint. Go on with: cscct resume {self.folder.path}{self._plugins()}")

    def _plugins(self) -> str:
        """Return the options that load the plugins again; they are never loaded because a run folder names them."""
        return "".join(f" --plugin {plugin}" for plugin in self.folder.origin()[1])

    def task_done(self, task: Task) -> None:
        self.spent = 0.0
        self.started = time.perf_counter()
        if task.index + 1 < len(self.learner.stream.tasks):
            self._save(task.index + 1, {}, None)
            untrained = not self.learner.config.network.train_backbone  # no step asks there
            if untrained and self.learner.group.any(self.stop()):
                raise self._interrupted()

    def _save(self, task: int, optimizer: Mapping[str, Tensor], stage: Mapping[str, Any] | None) -> None:
        state = {
            "task": task,
            "stage": stage,
            "seconds": self.seconds(),
            "exemplars": {str(label): ranked for label, ranked in self.learner.memory.exemplars.items()},
            **self.record.state(),
            "metrics_size": self.folder.metrics_size(),
            "data": self.record.data,
            "settings": identity(self.record.settings),
            "frozen": self.frozen,
        }
        self.folder.save_checkpoint({**state_tensors(self.learner), **optimizer}, state)
        self.last = time.perf_counter()

    def restore(self, saved: Checkpoint) -> tuple[int, Resume | None]:
        """Return the task to continue with, and the position within it."""
        try:
            return self._restore(*saved)
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"The checkpoint in {self.folder.path} does not fit the network that its settings describe: start a "
                "new run in another folder (--out)."
            ) from error

    def _restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> tuple[int, Resume | None]:
        if state["data"] != self.record.data:
            raise UserError(changed_data(self.folder))
        changed = differences(state["settings"], identity(self.record.settings))
        if changed:
            raise UserError(
                f"The config of the run in {self.folder.path} was changed after its last checkpoint: {changed[0]}. Put "
                "it back, or start a new run in another folder (--out)."
            )
        if state.get("frozen") != self.frozen:
            raise UserError(
                f"The weights of the frozen stages are not those that the run in {self.folder.path} began with: put "
                "the old ones back (the package or the file that network.backbone names), or start a new run in "
                "another folder (--out)."
            )
        if self.folder.metrics_size() < state["metrics_size"]:
            self.warn(f"Some epochs are missing at the end of {self.folder.path / METRICS}; figures will lack them.")
        restore_state(self.learner, tensors, {int(label): ranked for label, ranked in state["exemplars"].items()})
        self.record.restore(state)
        self.folder.cut_metrics(state["metrics_size"])
        stage = state["stage"]
        self.spent = state["seconds"]
        if stage is None:
            return state["task"], None
        optimizer = unpack_state(stage["optimizer"], tensors)
        return state["task"], Resume(stage["name"], StagePosition(**stage["position"]), optimizer)

    def images_done(self, first: int, resume: Resume | None) -> int:
        """Return the number of training images that are not processed again, for the progress display."""
        tasks = self.learner.stream.tasks
        done = sum(self.learner.planned_images(task) for task in tasks[:first])
        return done + (self.learner.images_until(tasks[first], resume) if resume is not None else 0)
