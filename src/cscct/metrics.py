"""Metrics of class-incremental learning, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class StoredSummary(TypedDict):
    """Metrics that the results of all versions contain."""

    average_incremental_accuracy: float
    apt: float | None
    act: float
    forgetting: float | None
    last_accuracy: float


class Summary(StoredSummary):
    """Metrics of a run, see `summarize`. APT, forgetting and the harmonic mean are None with a single task."""

    harmonic_mean: float | None


def cumulative(matrix: Sequence[Sequence[float]], task_sizes: Sequence[int]) -> list[float]:
    """Return the accuracy on all classes seen so far, after each task. Every test image has the same weight.

    Args:
        matrix: Rows `matrix[t][k]`: accuracy on task k after task t, in percent.
        task_sizes: Number of test images of each task.

    Returns:
        One accuracy per task, in percent.

    Raises:
        ValueError: If the matrix or the sizes are not valid.
    """
    _check(matrix, task_sizes)
    return [sum(a * n for a, n in zip(row, task_sizes, strict=False)) / sum(task_sizes[: len(row)]) for row in matrix]


def summarize(matrix: Sequence[Sequence[float]], task_sizes: Sequence[int]) -> Summary:
    """Return the metrics of a run.

    - Average incremental accuracy: mean over all tasks of the accuracy on all classes seen so far.
    - APT (average accuracy on previous tasks): mean over t ≥ 2 of the mean accuracy on earlier tasks. Tasks have equal
      weights.
    - ACT (average accuracy on current tasks): mean accuracy on the task just learned. Tasks have equal weights.
    - Forgetting: mean over earlier tasks of the best accuracy before the last task minus the accuracy after it.
    - Last accuracy: accuracy on all classes after the last task.
    - Harmonic mean: mean over t ≥ 2 of the harmonic mean of the accuracy on all old classes and the accuracy on the
      newest classes, 2 · old · new / (old + new). It is high only if neither old nor new classes are sacrificed.

    Args:
        matrix: Rows `matrix[t][k]`: accuracy on task k after task t, in percent. Row t has t + 1 values.
        task_sizes: Number of test images of each task.

    Returns:
        Metrics in percent. APT, forgetting and the harmonic mean are None with a single task.

    Raises:
        ValueError: If the matrix or the sizes are not valid.
    """
    seen = cumulative(matrix, task_sizes)
    tasks = len(matrix)
    apt = forgetting = harmonic = None
    if tasks > 1:
        apt = _mean([_mean(row[:-1]) for row in matrix[1:]])
        harmonic = _mean([_old_and_new(row, task_sizes) for row in matrix[1:]])
        last = matrix[-1]
        forgetting = _mean([max(matrix[t][k] for t in range(k, tasks - 1)) - last[k] for k in range(tasks - 1)])
    return Summary(
        average_incremental_accuracy=_mean(seen),
        apt=apt,
        act=_mean([row[-1] for row in matrix]),
        forgetting=forgetting,
        last_accuracy=seen[-1],
        harmonic_mean=harmonic,
    )


def _old_and_new(row: Sequence[float], task_sizes: Sequence[int]) -> float:
    """Return the harmonic mean of the accuracy on all old classes, with equal weights of test images, and on the newest
    ones."""
    *earlier, new = row
    sizes = task_sizes[: len(earlier)]
    old = sum(a * n for a, n in zip(earlier, sizes, strict=True)) / sum(sizes)
    return 2 * old * new / (old + new) if old + new else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _check(matrix: Sequence[Sequence[float]], task_sizes: Sequence[int]) -> None:
    if not matrix:
        raise ValueError("the accuracy matrix is empty: no task has been learned.")
    for t, row in enumerate(matrix):
        if len(row) != t + 1:
            raise ValueError(f"row {t} of the accuracy matrix must have {t + 1} accuracies, not {len(row)}.")
    if len(task_sizes) < len(matrix) or any(size <= 0 for size in task_sizes):
        raise ValueError(f"task_sizes must have a positive number of test images for each of the {len(matrix)} tasks.")
