"""When checkpoints are written, what they hold, and how a run goes on from one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from ..errors import Interrupted, UserError, Warn
from ..learn.learner import Learner, Resume
from ..learn.loop import MomentumBuffers, StagePosition
from ..structs import Task
from .checkpoints import Checkpoint
from .files import weights_sha256
from .folder import METRICS, RunFolder, changed_data, differences, identity
from .record import ResultRecord


class CheckpointWriter:
    """Writes checkpoints when they are due, and takes a learner back to one.

    every: seconds between two checkpoints within a task. stop: asked after every step; when it says so, a checkpoint
    is written and the run interrupted.
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
        trunk = learner.trunk
        self.trunk = None if trunk is None else weights_sha256(trunk.state_dict())  # its weights are not in checkpoints
        self.task = 0
        self.spent = 0.0  # seconds in this task by earlier processes
        self.started = self.last = time.perf_counter()

    def begin(self, task: Task) -> None:
        self.task, self.started = task.index, time.perf_counter()

    def seconds(self) -> float:
        return self.spent + time.perf_counter() - self.started

    def step(self, stage: str, position: StagePosition, buffers: Callable[[], MomentumBuffers]) -> None:
        """After each optimiser step."""
        stopping = self.learner.group.any(self.stop())
        if stopping or time.perf_counter() - self.last >= self.every:
            held = buffers()
            momentum = {f"momentum.{i}": one for i, one in enumerate(held) if one is not None}
            self._save(self.task, momentum, {"name": stage, "position": asdict(position), "buffers": len(held)})
        if stopping:
            raise Interrupted(
                f"Stopped after a checkpoint. Go on with: cscct resume {self.folder.path}{self._plugins()}"
            )

    def _plugins(self) -> str:
        """Plugins are never loaded because a run folder names them: the user gives them again."""
        return "".join(f" --plugin {plugin}" for plugin in self.folder.origin()[1])

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
            "data": self.record.data,
            "settings": identity(self.record.settings),
            "trunk": self.trunk,
        }
        self.folder.save_checkpoint({**self.learner.tensors(), **momentum}, state)
        self.last = time.perf_counter()

    def restore(self, saved: Checkpoint) -> tuple[int, Resume | None]:
        """The task to go on with, and the position within it."""
        tensors, state = saved
        if state["data"] != self.record.data:
            raise UserError(changed_data(self.folder))
        changed = differences(state["settings"], identity(self.record.settings))
        if changed:
            raise UserError(
                f"The config of the run in {self.folder.path} was changed after its last checkpoint: {changed[0]}. Put "
                "it back, or start a new run in another folder (--out)."
            )
        if state.get("trunk") != self.trunk:
            raise UserError(
                f"The weights of the frozen stages are not those that the run in {self.folder.path} began with: put "
                "the old ones back (the package or the file that network.backbone names), or start a new run in "
                "another folder (--out)."
            )
        if self.folder.metrics_size() < state["metrics_size"]:
            self.warn(f"Some epochs are missing at the end of {self.folder.path / METRICS}; figures will lack them.")
        try:
            self.learner.restore(tensors, {int(label): ranked for label, ranked in state["exemplars"].items()})
        except (RuntimeError, KeyError) as error:
            raise UserError(
                f"The checkpoint in {self.folder.path} does not fit the network that its settings describe: start a "
                "new run in another folder (--out)."
            ) from error
        self.record.tasks, self.record.matrix = state["tasks"], state["matrix"]
        self.folder.cut_metrics(state["metrics_size"])
        stage = state["stage"]
        self.spent = state["seconds"]
        if stage is None:
            return state["task"], None
        buffers = [tensors.get(f"momentum.{i}") for i in range(stage["buffers"])]
        return state["task"], Resume(stage["name"], StagePosition(**stage["position"]), buffers)

    def images_done(self, first: int, resume: Resume | None) -> int:
        """Training images that need no training again, for the progress display."""
        tasks = self.learner.stream.tasks
        done = sum(self.learner.planned_images(task) for task in tasks[:first])
        return done + (self.learner.images_until(tasks[first], resume) if resume is not None else 0)
