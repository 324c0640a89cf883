"""The result of a run while it is computed."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..config import Settings
from ..data import Stream
from ..features import NETWORK_PREDICTORS
from ..learn.evaluation import Evaluation, matrix_row
from ..metrics import cumulative, summarize
from ..structs import Task
from .folder import RunFolder
from .stored import result_sha256

Result = dict[str, Any]
SIZES = "task_sizes"


class Accuracies:
    """Accuracies on each task after each task, of all predictors.

    Args:
        sizes: Number of images of each task.
        predictors: Names of the predictors.

    Attributes:
        matrix: Rows of accuracies in percent, by predictor.
    """

    def __init__(self, sizes: list[int], predictors: Sequence[str]):
        self.sizes = sizes
        self.matrix: dict[str, list[list[float]]] = {name: [] for name in predictors}

    def add(self, confusion: Mapping[str, Tensor], tasks: tuple[Task, ...]) -> dict[str, float]:
        """Add a row for each predictor.

        Args:
            confusion: Confusion matrix of each predictor, (seen classes, seen classes).
            tasks: Tasks learned so far.

        Returns:
            Accuracy of each predictor on all classes seen so far.
        """
        for name, rows in self.matrix.items():
            rows.append(matrix_row(confusion[name], tasks))
        return {name: cumulative(rows, self.sizes)[-1] for name, rows in self.matrix.items()}

    def content(self) -> dict[str, Any]:
        """Return the entries of `result.json`: sizes, matrices and metrics."""
        summary = {name: summarize(rows, self.sizes) for name, rows in self.matrix.items() if rows}
        return {SIZES: self.sizes, "matrix": self.matrix, "summary": summary}


class ResultRecord:
    """Collects the content of `result.json`.

    Apart from `seconds` and `environment`, the result is a function of config, data and code.

    Args:
        settings: Complete settings of the run.
        stream: Tasks of the run.
        folder: Folder that the result is written to.
        first_task: Fingerprint of the first task.
        data: Fingerprint of the dataset.
    """

    def __init__(self, settings: Settings, stream: Stream, folder: RunFolder, first_task: str, data: str):
        self.settings, self.stream, self.folder = settings, stream, folder
        self.first_task, self.data = first_task, data
        self.tasks: list[dict[str, Any]] = []
        names = (*NETWORK_PREDICTORS, *settings.predictors)
        self.test = Accuracies(stream.images_per_task("test"), names)
        self.task_incremental = Accuracies(self.test.sizes, names)
        self.validation = Accuracies(stream.images_per_task("validation"), names) if stream.validation else None

    def add(self, task: Task, test: Evaluation, validation: Evaluation | None, seconds: float) -> dict[str, Any]:
        """Add an evaluated task.

        Args:
            task: The task.
            test: Evaluation on test images.
            validation: Evaluation on validation images, if there are any.
            seconds: Time spent on the task.

        Returns:
            The entry of the task in `result.json`.
        """
        tasks = self.stream.tasks[: task.index + 1]
        entry: dict[str, Any] = {
            "task": task.index,
            "classes": [self.stream.class_names[label] for label in task.classes],
            "accuracy": self.test.add(test.confusion, tasks),
            "task_incremental_accuracy": self.task_incremental.add(test.within_task, tasks),
        }
        if self.validation is not None and validation is not None:
            entry["validation_accuracy"] = self.validation.add(validation.confusion, tasks)
        self.tasks.append({**entry, "seconds": seconds})
        return self.tasks[-1]

    def state(self) -> dict[str, Any]:
        """Return the results so far, for a checkpoint."""
        state: dict[str, Any] = {"tasks": self.tasks, "matrix": self.test.matrix}
        state["task_incremental"] = self.task_incremental.matrix
        return state if self.validation is None else {**state, "validation": self.validation.matrix}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the results of a checkpoint."""
        self.tasks, self.test.matrix = state["tasks"], state["matrix"]
        self.task_incremental.matrix = state["task_incremental"]
        if self.validation is not None:
            self.validation.matrix = state["validation"]

    def write(self, status: str, **more: str) -> Result:
        """Write `result.json` and return its content. `more` replaces or adds values."""
        result: Result = {
            "status": status,
            "method": self.settings.method,
            "dataset": self.settings.dataset,
            "seed": self.settings.seed,
            "headline": self.settings.predict.predictor,
            "data_sha256": self.data,
            "first_task": self.first_task,  # equal for runs that can share it
            "tasks": self.tasks,
            **self.test.content(),
            "task_incremental": {key: value for key, value in self.task_incremental.content().items() if key != SIZES},
            **({"validation": self.validation.content()} if self.validation is not None else {}),
            "weights_sha256": None,
            **more,
            "environment": environment(self.settings),
        }
        result["sha256"] = result_sha256(result)
        self.folder.write_result(result)
        return result


def environment(settings: Settings) -> dict[str, Any]:
    """Return versions, machine and device, for `result.json`."""
    return {
        "cscct": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": settings.runtime.device,
        "threads": settings.runtime.threads,
    }
