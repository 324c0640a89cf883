"""Listeners: objects whose methods are called during a run, such as progress displays and the log of epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..config import Settings
from ..errors import UserError
from ..structs import Task
from .folder import RunFolder


class Listener:
    """Methods that a run calls on each object in `listeners`. All of them do nothing by default.

    Deriving from this class is optional: any object with at least one of these methods is a listener.
    """

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None:
        """Called before the first task.

        Args:
            settings: Settings of the run.
            tasks: All tasks.
            images: Number of training images over all epochs of all tasks.
        """

    def skipped(self, images: int) -> None:
        """Called when part of the training has already been done by an earlier process or another run.

        Args:
            images: Number of training images that are not processed again; may be 0.
        """

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        """Called after each optimizer step. Methods without training have one step per task.

        Args:
            task: The current task.
            stage: `train`, `finetune`, or `features` for methods without training.
            epoch: Index of the epoch.
            epochs: Number of epochs of the stage.
            images: Number of images in the batch.
            parts: Weighted loss of each term. On a GPU, losses are read every 20 steps: these are the last ones
                that were read in this epoch, and empty before.
        """

    def epoch(self, record: dict[str, Any]) -> None:
        """Called after each epoch.

        Args:
            record: The line of `metrics.jsonl`.
        """

    def task_finished(self, entry: Mapping[str, Any]) -> None:
        """Called after the evaluation of a task.

        Args:
            entry: Entry of the task in `result.json`.
        """

    def run_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        """Called after the last task.

        Args:
            result: Content of `result.json`.
            folder: Folder of the run.
        """

    def found_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        """Called instead of the other methods if the folder already contains the finished run.

        Args:
            result: Content of `result.json`.
            folder: Folder of the run.
        """


EVENTS = tuple(name for name in vars(Listener) if not name.startswith("_"))


class Listeners(Listener):
    """Calls several listeners in order.

    Args:
        members: Objects with at least one method of `Listener`; other methods are never called.

    Raises:
        UserError: If an object has none of these methods, or is a class.
    """

    def __init__(self, members: Sequence[object]):
        for member in members:
            if isinstance(member, type):
                raise UserError(f"listeners contains the class {member.__name__}: pass an object, {member.__name__}().")
            if not any(callable(getattr(member, event, None)) for event in EVENTS):
                raise UserError(
                    f"listeners contains {member!r}, which has no method of a listener: define at least one of "
                    f"{', '.join(EVENTS)}."
                )
        for event in EVENTS:
            callbacks = [getattr(member, event, None) for member in members]
            setattr(self, event, partial(_call_all, [callback for callback in callbacks if callable(callback)]))


def _call_all(callbacks: Iterable[Callable[..., None]], *arguments: Any) -> None:
    for callback in callbacks:
        callback(*arguments)


class MetricsLog(Listener):
    """Appends each epoch to `metrics.jsonl`."""

    def __init__(self, folder: RunFolder):
        self.folder = folder

    def epoch(self, record: dict[str, Any]) -> None:
        self.folder.append_metrics(record)
