"""The numbers behind the figures: curves, matrices, forgetting, confusion. Functions of runs; percent throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .groups import Group
from .load import Array, Missing, Run
from .settings import with_prediction
from .statistics import Spread, spread


def mean_and_sd(rows: Sequence[Sequence[float] | Array]) -> tuple[Array, Array]:
    """Over the first axis; no deviation with one row."""
    stacked = np.asarray(rows, dtype=float)
    sd = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else np.zeros(stacked.shape[1:])
    return stacked.mean(axis=0), sd


@dataclass(frozen=True)
class AccuracyCurve:
    """Accuracy on all classes seen after each task, over the seeds of a group."""

    label: str
    seen: list[int]  # classes, after each task
    mean: Array
    sd: Array | None  # None with one seed
    seeds: int

    def points(self) -> list[tuple[int, float, float | None]]:
        """Classes seen, mean and standard deviation after each task, for a table."""
        deviations = [None] * len(self.seen) if self.sd is None else self.sd.tolist()
        return list(zip(self.seen, self.mean.tolist(), deviations, strict=True))


def accuracy_curve(runs: Sequence[Run], label: str) -> AccuracyCurve:
    """runs: of one group, one for each seed."""
    mean, sd = mean_and_sd([run.curve for run in runs])
    name = with_prediction(label, runs[0].method, runs[0].headline)
    seen = np.cumsum(runs[0].sizes).tolist()
    return AccuracyCurve(name, seen, mean, sd if len(runs) > 1 else None, len(runs))


def accuracy_matrix(run: Run) -> Array:
    """Rows after a task, columns on a task; not a number above the diagonal."""
    matrix = np.full((len(run.sizes), len(run.sizes)), np.nan)
    for t, row in enumerate(run.matrix):
        matrix[t, : t + 1] = row
    return matrix


def class_accuracy(confusion: Array) -> Array:
    """Of each true class; not a number for one without test images."""
    total = confusion.sum(axis=1)
    return np.divide(100.0 * np.diag(confusion), total, out=np.full(len(confusion), np.nan), where=total > 0)


def class_forgetting(confusions: Sequence[Array]) -> Array:
    """For each class that is older than the last task: its best accuracy before the last task less its final one.

    confusions: one after each task, growing.
    """
    old = len(confusions[-2])
    accuracies = np.full((len(confusions), old), np.nan)
    for t, confusion in enumerate(confusions):
        known = class_accuracy(confusion)[:old]
        accuracies[t, : len(known)] = known
    # fmax passes over what is not a number; a class without test images stays one.
    return np.fmax.reduce(accuracies[:-1], axis=0) - accuracies[-1]


def forgetting_of(group: Group) -> tuple[Array, Array]:
    if len(group.runs[0].sizes) < 2:
        raise Missing("Forgetting needs a second task.")
    return mean_and_sd(
        [class_forgetting([run.confusion(t) for t in range(len(run.sizes))]) for run in group.comparable]
    )


def row_shares(confusion: Array) -> Array:
    """Each row in percent of its sum."""
    total = confusion.sum(axis=1, keepdims=True)
    return np.divide(100.0 * confusion, total, out=np.full(confusion.shape, np.nan), where=total > 0)


def old_new_shares(confusion: Array, old: int) -> Array:
    """2 × 2: of the test images of old and of new classes, the share taken for an old and for a new class."""
    parts = (slice(0, old), slice(old, None))
    return row_shares(np.array([[confusion[true, said].sum() for said in parts] for true in parts]))


def shares_of(group: Group) -> list[Spread]:
    """Old as old, old as new, new as old, new as new, after the last task. Needs no common class order."""
    last = len(group.runs[0].sizes) - 1
    if last == 0:
        raise Missing("Old classes need a second task.")
    shares = [old_new_shares(run.confusion(last), sum(run.sizes[:last])).ravel().tolist() for run in group.runs]
    return [spread(values) for values in zip(*shares, strict=True)]


def confusion_of(group: Group) -> Array:
    last = len(group.runs[0].sizes) - 1
    return mean_and_sd([row_shares(run.confusion(last)) for run in group.comparable])[0]


def similarity_of(group: Group) -> Array:
    """Rows: classes that came later; columns: classes before the last task's; empty where both came together."""
    if len(group.runs[0].sizes) < 2:
        raise Missing("Similarity of new to old classes needs a second task.")
    return mean_and_sd([_similarity(run) for run in group.comparable])[0]


def _similarity(run: Run) -> Array:
    first, last = run.sizes[0], run.sizes[-1]
    matrix = np.full((sum(run.sizes) - first, sum(run.sizes) - last), np.nan)
    seen = first
    for t, new in enumerate(run.sizes[1:], start=1):
        block = run.tensors(t).get("similarity")
        if block is None or block.shape != (new, seen):
            raise Missing(f"{run.path} holds no similarities of {new} new to {seen} old classes for task {t + 1}.")
        matrix[seen - first : seen - first + new, :seen] = block
        seen += new
    return matrix


@dataclass(frozen=True)
class LossSeries:
    places: list[tuple[int, str, int]]  # task, stage, epoch
    terms: list[str]
    mean: Array  # places × terms; not a number where a term was not active
    sd: Array


def losses_of(group: Group) -> LossSeries:
    """The weighted parts of the loss, epoch by epoch. Runs that took over a trained first task lack its epochs."""
    records = [{record["place"]: record.get("losses", {}) for record in run.epochs()} for run in group.runs]
    places = sorted({p for one in records for p in one}, key=lambda p: (p[0], p[1] != "train", p[1], p[2]))
    terms = list(dict.fromkeys(term for one in records for place in places for term in one.get(place, {})))
    if not places or not terms:
        raise Missing(f"{group.runs[0].path} has no epoch in its metrics.")
    values = [[[one.get(place, {}).get(term, np.nan) for term in terms] for place in places] for one in records]
    return LossSeries(places, terms, *_known_mean_and_sd(np.asarray(values, dtype=float)))


def _known_mean_and_sd(values: Array) -> tuple[Array, Array]:
    """Over the first axis, of what is a finite number; no deviation where there is one."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    nothing = np.full(count.shape, np.nan)
    mean = np.divide(np.where(known, values, 0).sum(axis=0), count, out=nothing.copy(), where=count > 0)
    squares = np.where(known, (values - mean) ** 2, 0).sum(axis=0)
    return mean, np.sqrt(np.divide(squares, count - 1, out=nothing, where=count > 1))
