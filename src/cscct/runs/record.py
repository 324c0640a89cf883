"""What becomes `result.json`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..config import Settings
from ..data import Stream
from ..learn.predict import HEADLINES, matrix_row
from ..metrics import cumulative, summarize
from ..structs import Task
from .files import result_sha256
from .folder import RunFolder

Result = dict[str, Any]


class ResultRecord:
    """The result so far. Apart from `seconds` and `environment`, a function of config, data and code."""

    def __init__(self, settings: Settings, stream: Stream, folder: RunFolder, first_task: str, data: str):
        self.settings, self.stream, self.folder = settings, stream, folder
        self.first_task, self.data = first_task, data
        self.tasks: list[dict[str, Any]] = []
        self.matrix: dict[str, list[list[float]]] = {name: [] for name in HEADLINES}
        self.sizes = [stream.test_images(task.classes) for task in stream.tasks]

    def add(self, task: Task, confusion: Mapping[str, Tensor], seconds: float) -> dict[str, Any]:
        """The entry of a task that has been evaluated."""
        for name, rows in self.matrix.items():  # the predictions that were measured from the first task on
            rows.append(matrix_row(confusion[name], self.stream.tasks[: task.index + 1]))
        entry = {
            "task": task.index,
            "classes": [self.stream.class_names[label] for label in task.classes],
            "accuracy": {name: cumulative(rows, self.sizes)[-1] for name, rows in self.matrix.items()},
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
            "data_sha256": self.data,
            "first_task": self.first_task,  # the same for runs that may share it
            "tasks": self.tasks,
            "task_sizes": self.sizes,
            "matrix": self.matrix,
            "summary": {name: summarize(rows, self.sizes) for name, rows in self.matrix.items() if rows},
            "weights_sha256": None,
            **more,
            "environment": environment(self.settings),
        }
        result["sha256"] = result_sha256(result)
        self.folder.write_result(result)
        return result


def environment(settings: Settings) -> dict[str, Any]:
    """Versions and machine, for the record."""
    return {
        "cscct": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": settings.runtime.device,
        "threads": settings.runtime.threads,
    }
