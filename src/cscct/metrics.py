"""Accuracies over a stream of tasks, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class Summary(TypedDict):
    average_incremental_accuracy: float
    apt: float | None
    act: float
    forgetting: float | None
    last_accuracy: float


def cumulative(matrix: Sequence[Sequence[float]], task_sizes: Sequence[int]) -> list[float]:
    """Accuracy over all classes seen after each task: every test image counts once."""
    _check(matrix, task_sizes)
    return [sum(a * n for a, n in zip(row, task_sizes, strict=False)) / sum(task_sizes[: len(row)]) for row in matrix]


def summarize(matrix: Sequence[Sequence[float]], task_sizes: Sequence[int]) -> Summary:
    """The figures of the field from ragged rows `matrix[t][k]`: accuracy on task k after task t, in percent.

    - average incremental accuracy: mean over tasks, the first included, of the accuracy on everything seen;
    - APT: mean over t ≥ 2 of the mean accuracy on earlier tasks; ACT: mean accuracy on the task just learned;
      in both every task counts once, whatever its size;
    - forgetting: mean over earlier tasks of the best accuracy before the end less the one at the end.

    task_sizes: test images of each task.
    """
    seen = cumulative(matrix, task_sizes)
    tasks = len(matrix)
    apt = forgetting = None
    if tasks > 1:
        apt = _mean([_mean(row[:-1]) for row in matrix[1:]])
        last = matrix[-1]
        forgetting = _mean([max(matrix[t][k] for t in range(k, tasks - 1)) - last[k] for k in range(tasks - 1)])
    return Summary(
        average_incremental_accuracy=_mean(seen),
        apt=apt,
        act=_mean([row[-1] for row in matrix]),
        forgetting=forgetting,
        last_accuracy=seen[-1],
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _check(matrix: Sequence[Sequence[float]], task_sizes: Sequence[int]) -> None:
    if not matrix:
        raise ValueError("the accuracy matrix has no row: no task has been learned.")
    for t, row in enumerate(matrix):
        if len(row) != t + 1:
            raise ValueError(f"row {t} of the accuracy matrix must hold {t + 1} accuracies, not {len(row)}.")
    if len(task_sizes) < len(matrix) or any(size <= 0 for size in task_sizes):
        raise ValueError(f"task_sizes must give test images, at least 1, for each of the {len(matrix)} tasks.")
