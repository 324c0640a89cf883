"""Callbacks during a run: progress displays, those of users, the log of epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import Settings
from ..structs import Task
from .folder import RunFolder


class Listener:
    """Base class of listeners: every method does nothing. Override those you want and pass an object to `cscct.run`."""

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None:
        """images: training images over all epochs of all tasks."""

    def skipped(self, images: int) -> None:
        """So many of these images need no training: an earlier process or another run has done it."""

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        """After each optimiser step. stage: `train` or `finetune`; parts: the weighted losses by name. A method without
        training has one step a task, of the stage `features`."""

    def epoch(self, record: dict[str, Any]) -> None:
        """After each epoch, with the line of `metrics.jsonl`."""

    def task_finished(self, entry: Mapping[str, Any]) -> None:
        """After the evaluation of a task, with its entry in `result.json`."""

    def run_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        """At the end, with the content of `result.json`."""

    def found_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        """Instead of all this, where the folder holds the finished run already."""


class Listeners(Listener):
    """Passes everything on to several listeners, in order."""

    def __init__(self, members: Sequence[Listener]):
        self.members = tuple(members)

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None:
        for one in self.members:
            one.run_started(settings, tasks, images)

    def skipped(self, images: int) -> None:
        for one in self.members:
            one.skipped(images)

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        for one in self.members:
            one.step(task, stage, epoch, epochs, images, parts)

    def epoch(self, record: dict[str, Any]) -> None:
        for one in self.members:
            one.epoch(record)

    def task_finished(self, entry: Mapping[str, Any]) -> None:
        for one in self.members:
            one.task_finished(entry)

    def run_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        for one in self.members:
            one.run_finished(result, folder)

    def found_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        for one in self.members:
            one.found_finished(result, folder)


class MetricsLog(Listener):
    """Appends each epoch to `metrics.jsonl`."""

    def __init__(self, folder: RunFolder):
        self.folder = folder

    def epoch(self, record: dict[str, Any]) -> None:
        self.folder.append_metrics(record)
