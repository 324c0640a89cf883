"""Data of the figures: curves, matrices, forgetting, confusion, losses. Accuracies are percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .groups import Group
from .load import Array, MissingDataError, StoredRun
from .settings import with_prediction
from .statistics import Spread, spread


def mean_and_sd(rows: Sequence[Sequence[float] | Array]) -> tuple[Array, Array]:
    """Return mean and sample standard deviation over the first axis; the deviation of one row is 0."""
    stacked = np.asarray(rows, dtype=float)
    sd = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else np.zeros(stacked.shape[1:])
    return stacked.mean(axis=0), sd


@dataclass(frozen=True)
class AccuracyCurve:
    """Accuracy on all classes seen so far, after each task, over the seeds of a group.

    Attributes:
        label: Name of the curve.
        seen: Number of classes seen after each task.
        mean: Mean accuracy after each task, (tasks,).
        sd: Sample standard deviation, (tasks,); None for one seed.
        seeds: Number of seeds.
    """

    label: str
    seen: list[int]
    mean: Array
    sd: Array | None
    seeds: int

    def points(self) -> list[tuple[int, float, float | None]]:
        """Return classes seen, mean and standard deviation after each task."""
        deviations = [None] * len(self.seen) if self.sd is None else self.sd.tolist()
        return list(zip(self.seen, self.mean.tolist(), deviations, strict=True))


def accuracy_curve(runs: Sequence[StoredRun], label: str) -> AccuracyCurve:
    """Return the curve of the runs of a group, with the predictor added to its label if it is not the classifier."""
    mean, sd = mean_and_sd([run.curve for run in runs])
    name = with_prediction(label, runs[0].method, runs[0].headline)
    seen = np.cumsum(runs[0].sizes).tolist()
    return AccuracyCurve(name, seen, mean, sd if len(runs) > 1 else None, len(runs))


def accuracy_matrix(run: StoredRun) -> Array:
    """Return the accuracy after each task (rows) on each task (columns); NaN above the diagonal."""
    matrix = np.full((len(run.sizes), len(run.sizes)), np.nan)
    for t, row in enumerate(run.matrix):
        matrix[t, : t + 1] = row
    return matrix


def class_accuracy(confusion: Array) -> Array:
    """Return the accuracy of each true class; NaN for a class without test images."""
    total = confusion.sum(axis=1)
    return np.divide(100.0 * np.diag(confusion), total, out=np.full(len(confusion), np.nan), where=total > 0)


def class_forgetting(confusions: Sequence[Array]) -> Array:
    """Return, for each class before the last task, its best accuracy before that task minus its final accuracy.

    Args:
        confusions: Confusion matrix after each task, (classes seen, classes seen).
    """
    old = len(confusions[-2])
    accuracies = np.full((len(confusions), old), np.nan)
    for t, confusion in enumerate(confusions):
        known = class_accuracy(confusion)[:old]
        accuracies[t, : len(known)] = known
    # fmax ignores NaN unless both values are NaN, as for a class without test images.
    return np.fmax.reduce(accuracies[:-1], axis=0) - accuracies[-1]


def forgetting_of(group: Group) -> tuple[Array, Array]:
    """Return mean and standard deviation of the forgetting of each class, in the order of learning."""
    if len(group.runs[0].sizes) < 2:
        raise MissingDataError("Forgetting needs a second task.")
    return mean_and_sd(
        [class_forgetting([run.confusion(t) for t in range(len(run.sizes))]) for run in group.comparable]
    )


def row_shares(confusion: Array) -> Array:
    """Return each row in percent of its sum."""
    total = confusion.sum(axis=1, keepdims=True)
    return np.divide(100.0 * confusion, total, out=np.full(confusion.shape, np.nan), where=total > 0)


def old_new_shares(confusion: Array, old: int) -> Array:
    """Return, for test images of old and of new classes (rows), the percentage predicted as old and new (columns)."""
    parts = (slice(0, old), slice(old, None))
    return row_shares(np.array([[confusion[true, predicted].sum() for predicted in parts] for true in parts]))


def shares_of(group: Group) -> list[Spread]:
    """Return the spread of old as old, old as new, new as old and new as new, after the last task."""
    last = len(group.runs[0].sizes) - 1
    if last == 0:
        raise MissingDataError("Old classes need a second task.")
    shares = [old_new_shares(run.confusion(last), sum(run.sizes[:last])).ravel().tolist() for run in group.runs]
    return [spread(values) for values in zip(*shares, strict=True)]


def confusion_of(group: Group) -> Array:
    """Return the mean confusion matrix after the last task, in percent of each true class."""
    last = len(group.runs[0].sizes) - 1
    return mean_and_sd([row_shares(run.confusion(last)) for run in group.comparable])[0]


def similarity_of(group: Group) -> Array:
    """Return the mean cosines of later classes (rows) and earlier classes (columns); NaN within a task."""
    if len(group.runs[0].sizes) < 2:
        raise MissingDataError("Similarity of new to old classes needs a second task.")
    return mean_and_sd([_similarity(run) for run in group.comparable])[0]


def _similarity(run: StoredRun) -> Array:
    first, last = run.sizes[0], run.sizes[-1]
    matrix = np.full((sum(run.sizes) - first, sum(run.sizes) - last), np.nan)
    seen = first
    for t, new in enumerate(run.sizes[1:], start=1):
        block = run.tensors(t).get("similarity")
        if block is None or block.shape != (new, seen):
            raise MissingDataError(
                f"{run.path} has no similarities of {new} new to {seen} old classes for task {t + 1}."
            )
        matrix[seen - first : seen - first + new, :seen] = block
        seen += new
    return matrix


@dataclass(frozen=True)
class LossSeries:
    """Weighted loss terms in each epoch, over the seeds of a group.

    Attributes:
        places: Task, stage and epoch of each point.
        terms: Names of the loss terms.
        mean: Mean of each term, (places, terms); NaN where a term is not active.
        sd: Sample standard deviation, (places, terms).
    """

    places: list[tuple[int, str, int]]
    terms: list[str]
    mean: Array
    sd: Array


def losses_of(group: Group) -> LossSeries:
    """Return the weighted loss terms. Runs that reused a trained first task have no epochs of it."""
    losses = [{record["place"]: record.get("losses", {}) for record in run.epochs()} for run in group.runs]
    places = sorted({p for by_place in losses for p in by_place}, key=lambda p: (p[0], p[1] != "train", p[1], p[2]))
    terms = list(dict.fromkeys(term for by_place in losses for p in places for term in by_place.get(p, {})))
    if not places or not terms:
        raise MissingDataError(f"{group.runs[0].path} has no epochs in its metrics.")
    values = [[[by_place.get(p, {}).get(term, np.nan) for term in terms] for p in places] for by_place in losses]
    return LossSeries(places, terms, *_finite_mean_and_sd(np.asarray(values, dtype=float)))


def _finite_mean_and_sd(values: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the finite values over the first axis; NaN with too few of them."""
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    undefined = np.full(count.shape, np.nan)
    mean = np.divide(np.where(finite, values, 0).sum(axis=0), count, out=undefined.copy(), where=count > 0)
    squares = np.where(finite, (values - mean) ** 2, 0).sum(axis=0)
    return mean, np.sqrt(np.divide(squares, count - 1, out=undefined, where=count > 1))
