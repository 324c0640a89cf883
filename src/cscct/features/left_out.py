"""Samples for leave-out estimates: each is predicted by a fit without it and without its near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from .linear import FittedPredictor
from .statistics import ClassStatistics

if TYPE_CHECKING:
    from .predictors import Predictor

FOLDS = 5
MAX_SELECTED = 1000  # samples that hyperparameters are selected on: the average over more is no more accurate
CHUNK = 2**21  # scores that are computed at once
NEAR = 0.23  # squared distance of near-duplicate images, relative to that of other images of a class
SAME = 1e-8  # the same for equal feature vectors
Groups = Sequence[Tensor | None]  # for each class the group of each sample, (count,) int64; None: no near-duplicates


@dataclass(frozen=True)
class LeftOutSamples:
    """Samples that are left out of a fit.

    Attributes:
        rows: Features, shape (n, d).
        labels: Class indices, shape (n,), int64.
        positions: Positions of the samples in their classes, shape (n,), int64.
        tested: Positions of the samples that are predicted, shape (k,), int64.
        groups: Positions of the members of each group of near-duplicates; single samples are not listed.
    """

    rows: Tensor
    labels: Tensor
    positions: Tensor
    tested: Tensor
    groups: list[Tensor]


class Fit(Protocol):
    """A predictor that was fitted to class statistics."""

    @property
    def predictor(self) -> FittedPredictor:
        """The predictor fitted to all samples."""

    def left_out_scores(self, samples: LeftOutSamples) -> Tensor:
        """Return the scores of the tested samples by fits without their groups, shape (k, classes)."""


class FoldFit:
    """A fit of any predictor. Samples are left out in five folds, for each of which the predictor is fitted again;
    near-duplicates are in the same fold.

    Args:
        part: The predictor.
        classes: Statistics of each class, in the order of the labels.
        groups: Groups of near-duplicates; None if there are none.
        seed: Seed of random numbers.
    """

    def __init__(self, part: Predictor, classes: Sequence[ClassStatistics], groups: Groups | None, seed: int):
        self.part, self.classes, self.seed = part, list(classes), seed
        self.predictor: FittedPredictor = part.fit(self.classes, seed)
        self.folds = [torch.zeros(stats.count, dtype=torch.int64) for stats in classes]
        for label, stats in enumerate(classes):
            for number, members in enumerate(_members(stats, None if groups is None else groups[label])):
                self.folds[label][members] = number % FOLDS

    def left_out_scores(self, samples: LeftOutSamples) -> Tensor:
        """Return the scores of the tested samples by fits without their folds, shape (k, classes)."""
        rows, labels = samples.rows[samples.tested].float(), samples.labels[samples.tested]
        pairs = zip(labels.tolist(), samples.positions[samples.tested].tolist(), strict=True)
        folds = torch.tensor([int(self.folds[label][position]) for label, position in pairs], dtype=torch.int64)
        scores = torch.empty(len(rows), len(self.classes), dtype=torch.float64)
        for fold in folds.unique().tolist():
            scores[folds == fold] = self._without(fold).log_probabilities(rows[folds == fold])
        return scores * self.predictor.temperature

    def _without(self, fold: int) -> FittedPredictor:
        rest = []
        for stats, folds in zip(self.classes, self.folds, strict=True):
            kept = folds != fold
            split = bool((folds != folds[:1]).any()) and stats.samples is not None
            keep = stats.count > stats.rows.shape[1]
            rest.append(ClassStatistics.of(stats.rows[kept], keep_samples=keep) if split else stats)
        return self.part.fit(rest, self.seed)


@dataclass(frozen=True)
class LeftOutPredictions:
    """Predictions for all stored samples by fits without them, in the order of the classes and of their samples.

    Attributes:
        predicted: Index of the predicted class, shape (n,), int32; -1 for samples that cannot be tested.
        own: Probability of the class of the sample, shape (n,), float32.
        best: Probability of the predicted class, shape (n,), float32.
    """

    predicted: Tensor
    own: Tensor
    best: Tensor


def near_duplicates(classes: Sequence[ClassStatistics], ratio: float = NEAR) -> Groups:
    """Find groups of samples of a class that are much closer to each other than other samples of a class.

    Distances are those of unit features, relative to the median of the squared distances within a class (the median
    over the classes). Samples that are connected by short distances form a group.

    Args:
        classes: Statistics of each class.
        ratio: Largest relative squared distance of near-duplicates.

    Returns:
        Groups of each class.
    """
    typical = sorted(stats.pair_distances[0] for stats in classes if stats.pair_distances is not None)
    scale = typical[len(typical) // 2] if typical else 0.0
    limit = max(ratio * scale, 1e-6)
    return [_groups(stats, limit) for stats in classes]


def _groups(stats: ClassStatistics, limit: float) -> Tensor | None:
    pairs = stats.pair_distances
    distances = stats.unit_distances() if pairs is not None and pairs[1] <= limit else None
    return None if distances is None else _components(distances <= limit)


def _components(near: Tensor) -> Tensor | None:
    """Return the connected component of each sample; None if each is alone."""
    near = near.clone()
    near.fill_diagonal_(True)
    if int(near.sum()) == len(near):
        return None
    from scipy.sparse.csgraph import connected_components  # imported late: prediction does not need it

    return torch.from_numpy(connected_components(near.numpy(), directed=False)[1]).long()


def select_samples(classes: Sequence[ClassStatistics], groups: Groups | None = None) -> LeftOutSamples:
    """Return samples on which hyperparameters are selected: one of each group, at most about `MAX_SELECTED`, evenly
    spaced within each class. Classes without stored samples or with a single group are skipped. Of more than
    `MAX_SELECTED` classes, two samples of so many classes are selected, evenly spaced in the order of the norms of
    their means, which does not depend on the order of learning.

    Args:
        classes: Statistics of each class, in the order of the labels.
        groups: Groups of near-duplicates; None if there are none.
    """
    limit = max(2, MAX_SELECTED // len(classes))
    builder = _Builder(classes[0].rows[:0])
    for label in _selected_classes(classes):
        stats = classes[label]
        members = _members(stats, None if groups is None else groups[label])
        if len(members) > 1:
            chosen = torch.linspace(0, len(members) - 1, min(len(members), limit)).round().long().tolist()
            builder.add(stats, label, [members[index] for index in chosen], first_only=True)
    return builder.samples()


def _selected_classes(classes: Sequence[ClassStatistics]) -> list[int]:
    if len(classes) <= MAX_SELECTED:
        return list(range(len(classes)))
    norms = torch.stack([stats.mean for stats in classes]).norm(dim=1)
    several = torch.tensor([stats.samples is not None and stats.count > 1 for stats in classes])
    ranked = norms.argsort()
    ranked = ranked[several[ranked]]
    chosen = torch.linspace(0, len(ranked) - 1, min(len(ranked), MAX_SELECTED)).round().long()
    return sorted(ranked[chosen].tolist())


def left_out_predictions(
    fit: Fit, classes: Sequence[ClassStatistics], groups: Groups | None = None, tested: Sequence[Tensor] | None = None
) -> LeftOutPredictions:
    """Predict all stored samples by fits without them and without their near-duplicates.

    Args:
        fit: The fit to all samples.
        classes: Statistics of each class, in the order of the labels.
        groups: Groups of near-duplicates; None if there are none.
        tested: For each class, which samples are tested, (count,) bool; None for all.
    """
    sizes = [stats.count if stats.samples is not None else 0 for stats in classes]
    starts = torch.tensor([0, *sizes]).cumsum(0)[:-1].tolist()
    total = sum(sizes)
    predicted, probabilities = torch.full((total,), -1, dtype=torch.int32), torch.zeros(2, total)
    for part in _chunks(classes, groups):
        builder, positions = _Builder(classes[0].rows[:0]), []
        for label, members in part:
            builder.add(classes[label], label, members)
            positions.append(torch.cat(members) + starts[label])
        samples, where = builder.samples(), torch.cat(positions)
        if tested is not None:
            flags = torch.cat([tested[label][torch.cat(members)] for label, members in part])
            samples = replace(samples, tested=torch.nonzero(flags)[:, 0])
        if not len(samples.tested):
            continue
        log = (fit.left_out_scores(samples).double() / fit.predictor.temperature).log_softmax(dim=1)
        best, index = log.max(dim=1)
        where, own = where[samples.tested], log.gather(1, samples.labels[samples.tested, None])[:, 0]
        predicted[where] = index.int()
        probabilities[:, where] = torch.stack([own, best]).exp().float()
    return LeftOutPredictions(predicted, probabilities[0], probabilities[1])


def _members(stats: ClassStatistics, groups: Tensor | None) -> list[Tensor]:
    """Return the samples of each group; empty if the class has no samples or a single group."""
    if stats.samples is None or stats.count < 2:
        return []
    if groups is None:
        return list(torch.arange(stats.count)[:, None])
    members = [torch.nonzero(groups == group)[:, 0] for group in range(int(groups.max()) + 1)]
    return sorted(members, key=lambda rows: int(rows[0])) if len(members) > 1 else []


def _chunks(classes: Sequence[ClassStatistics], groups: Groups | None) -> Iterator[list[tuple[int, list[Tensor]]]]:
    """Yield testable classes with their groups, in portions of about `CHUNK` scores."""
    portion: list[tuple[int, list[Tensor]]] = []
    size = 0
    for label, stats in enumerate(classes):
        members = _members(stats, None if groups is None else groups[label])
        if not members:
            continue
        portion.append((label, members))
        size += stats.count * len(classes)
        if size >= CHUNK:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


class _Builder:
    def __init__(self, empty: Tensor):
        self.rows, self.labels, self.tested, self.groups = [empty.double()], [], [], []  # type: ignore[var-annotated]
        self.positions = [torch.empty(0, dtype=torch.int64)]
        self.count = 0

    def add(self, stats: ClassStatistics, label: int, members: Sequence[Tensor], first_only: bool = False) -> None:
        self.positions.append(torch.cat(list(members)))
        self.rows.append(stats.rows[self.positions[-1]].double())
        for group in members:
            positions = torch.arange(self.count, self.count + len(group))
            if len(group) > 1:
                self.groups.append(positions)
            self.tested.append(positions[:1] if first_only else positions)
            self.count += len(group)
            self.labels += [label] * len(group)

    def samples(self) -> LeftOutSamples:
        tested = torch.cat([torch.empty(0, dtype=torch.int64), *self.tested])
        labels, positions = torch.tensor(self.labels, dtype=torch.int64), torch.cat(self.positions)
        return LeftOutSamples(torch.cat(self.rows), labels, positions, tested, self.groups)
