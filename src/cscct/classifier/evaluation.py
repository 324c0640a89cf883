"""Cross-validated predictions of the photos of a model, and the figures that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from ..errors import UserError
from ..features import (
    ClassStatistics,
    Fit,
    FittedPredictor,
    Groups,
    Predictor,
    left_out_predictions,
    near_duplicates,
)
from ..features.left_out import MAX_SELECTED, NEAR, SAME
from .labels import Label

Statistics = Mapping[Label, ClassStatistics]
Confusion = dict[Label, Counter[Label]]  # true class -> predicted class -> count
Accuracy = dict[str, Annotated[list[int], Field(min_length=2, max_length=2)]]  # class -> [correct, tested]
# Multiplications (3·10¹⁰ take about a second) that a measurement may take for each image learned since the last one
BUDGET_OF_A_PHOTO = 3e9
BUDGET_OF_A_VECTOR = 1e8
GROWTH = 1.1  # beyond the budget, accuracy is measured again when a model has this many times the images


@dataclass(frozen=True)
class Evaluation:
    """One row per tested photo. Classes are indices in the order of the classes of the model.

    Attributes:
        true: Class of the photo, shape (n,), int32.
        position: Position of the photo in its class, shape (n,), int32; -1 if unknown.
        predicted: Predicted class, shape (n,), int32.
        own: Probability of the class of the photo, shape (n,), float32.
        best: Probability of the predicted class, shape (n,), float32.
        images: Number of images of the model when it was measured, shape (1,), int64.
    """

    true: Tensor
    position: Tensor
    predicted: Tensor
    own: Tensor
    best: Tensor
    images: Tensor

    @staticmethod
    def of(parts: Sequence[tuple[int, Tensor, Tensor]], images: int) -> Evaluation:
        """Return the evaluation of predictions.

        Args:
            parts: For each class its index, the positions of the tested photos, and log-probabilities (k, classes).
            images: Number of images of the model.
        """
        rows: list[list[Tensor]] = [[], [], [], [], []]
        for label, positions, log in parts:
            best, predicted = log.double().exp().max(dim=1)
            columns = (torch.full((len(log),), label), positions, predicted, log.double().exp()[:, label], best)
            for column, values in zip(rows, columns, strict=True):
                column.append(values)
        kinds = (torch.int32, torch.int32, torch.int32, torch.float32, torch.float32)
        empty = torch.empty(0)
        table = [torch.cat([empty, *column]).to(kind) for column, kind in zip(rows, kinds, strict=True)]
        return Evaluation(*table, torch.tensor([images]))  # type: ignore[call-arg]

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields as tensors for a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], counts: Sequence[int]) -> Evaluation:
        """Return what `tensors` describes.

        Args:
            tensors: Result of `tensors`.
            counts: Number of images of each class.

        Raises:
            UserError: The tensors do not fit the classes.
        """
        names = [field.name for field in fields(Evaluation)]
        columns = [tensors.get(name, torch.empty(0)) for name in names[:-1]]
        classes, size = len(counts), len(columns[0])
        limits = torch.tensor([*counts, 0])
        valid = set(tensors) == set(names) and tensors["images"].shape == (1,)
        valid = valid and all(column.shape == (size,) and bool(column.isfinite().all()) for column in columns)
        if valid and size:
            true, position, predicted, own, best = columns
            valid = (
                int(torch.stack([true, predicted]).min()) >= 0 and int(torch.stack([true, predicted]).max()) < classes
            )
            valid = valid and int(position.min()) >= -1 and bool((position < limits[true.long()]).all())
            valid = (
                valid and float(torch.stack([own, best]).min()) >= 0 and float(torch.stack([own, best]).max()) <= 1.01
            )
        if not valid:
            raise UserError("The stored evaluation of the model is damaged.")
        return Evaluation(*columns, tensors["images"])  # type: ignore[call-arg]

    def keep_classes(self, kept: Sequence[int]) -> Evaluation:
        """Return the rows whose true and predicted classes remain, with new indices.

        Args:
            kept: Indices of the remaining classes.
        """
        new = torch.full((int(max([*kept, *self.true.tolist(), *self.predicted.tolist()], default=0)) + 1,), -1)
        new[list(kept)] = torch.arange(len(kept))
        true, predicted = new[self.true.long()].int(), new[self.predicted.long()].int()
        rows = (true >= 0) & (predicted >= 0)
        table = (true[rows], self.position[rows], predicted[rows], self.own[rows], self.best[rows])
        return Evaluation(*table, self.images)

    def confusion(self, labels: Sequence[Label]) -> Confusion:
        """Return the number of predictions of each class, for each true class.

        Args:
            labels: Labels of the classes of the model.
        """
        confusion: Confusion = {label: Counter() for label in labels}
        pairs, counts = (self.true.long() * len(labels) + self.predicted).unique(return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            confusion[labels[pair // len(labels)]][labels[pair % len(labels)]] = count
        return confusion


def accuracies(confusion: Confusion) -> Accuracy:
    """Return the number of correct predictions and tested images of each class. A single class has no accuracy."""
    if len(confusion) < 2:
        return {str(label): [0, 0] for label in confusion}
    return {str(label): [counts[label], counts.total()] for label, counts in confusion.items()}


def duplicate_groups(classes: Sequence[ClassStatistics], *, images: bool) -> Groups:
    """Return the groups of near-duplicates of each class.

    Args:
        classes: Statistics of each class.
        images: Whether the features are those of images. Of other features only equal ones are grouped.
    """
    return near_duplicates(classes, NEAR if images else SAME)


def count_duplicates(labels: Iterable[Label], groups: Groups) -> dict[str, int]:
    """Return how many images of each class are near-duplicates of another image of the class.

    Args:
        labels: Labels of the classes.
        groups: Groups of near-duplicates of each class.
    """
    pairs = zip(labels, groups, strict=True)
    return {str(label): len(group) - int(group.max()) - 1 for label, group in pairs if group is not None}


@dataclass(frozen=True)
class FittedClasses:
    """A training-free predictor that was fitted to class statistics, with near-duplicates kept together.

    Args:
        fit: The fit.
        classes: Statistics of each class.
        groups: Groups of near-duplicates of each class.
    """

    fit: Fit
    classes: list[ClassStatistics]
    groups: Groups

    @staticmethod
    def of(predictor: Predictor, statistics: Statistics, *, images: bool, seed: int = 0) -> FittedClasses:
        """Fit a predictor.

        Args:
            predictor: The predictor.
            statistics: Statistics of each class.
            images: Whether the features are those of images. Of other features only equal ones are kept together.
            seed: Seed of random numbers.
        """
        classes = list(statistics.values())
        groups = duplicate_groups(classes, images=images)
        return FittedClasses(predictor.leave_out(classes, groups, seed), classes, groups)

    @property
    def predictor(self) -> FittedPredictor:
        """The predictor fitted to all images."""
        return self.fit.predictor

    def evaluate(self, exemplars: Mapping[int, Tensor], tested: Sequence[Tensor] | None = None) -> Evaluation:
        """Predict each photo with a fit without it and without its near-duplicates.

        Args:
            exemplars: Features (k, d) of exemplars of classes with only aggregated statistics, by index. They are
                predicted by the fit to all images, including the exemplars.
            tested: For each class, which photos are tested, (count,) bool; None for all.
        """
        left_out = left_out_predictions(self.fit, self.classes, self.groups, tested)
        sizes = [stats.count if stats.samples is not None else 0 for stats in self.classes]
        true = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        position = torch.cat([torch.empty(0, dtype=torch.int64), *map(torch.arange, sizes)])
        measured = left_out.predicted >= 0
        predictor = self.predictor
        others = Evaluation.of(
            [
                (index, torch.full((len(rows),), -1), predictor.log_probabilities(rows))
                for index, rows in exemplars.items()
                if self.classes[index].samples is None and len(rows)
            ],
            sum(stats.count for stats in self.classes),
        )
        columns = (true, position, left_out.predicted, left_out.own, left_out.best)
        names = ("true", "position", "predicted", "own", "best")
        table = [
            torch.cat([column[measured].to(getattr(others, name).dtype), getattr(others, name)])
            for name, column in zip(names, columns, strict=True)
        ]
        return Evaluation(*table, others.images)  # type: ignore[call-arg]


def worth_measuring(statistics: Statistics, previous: Evaluation | None, *, photos: bool) -> bool:
    """Return whether accuracy is measured in a step: if it costs little compared with the images learned since the last
    measurement, or the model has grown enough.

    A measurement takes time proportional to images times classes. A model that grows in many small steps is measured
    less and less often, so that the measurements take time proportional to the images in total.

    Args:
        statistics: Statistics of each class.
        previous: The last evaluation, if there is one.
        photos: Whether features are computed from photos, which takes much longer than reading features.
    """
    if previous is None:
        return True
    images, classes = sum(stats.count for stats in statistics.values()), len(statistics)
    if images >= GROWTH * int(previous.images):
        return True
    width = len(next(iter(statistics.values())).total)
    predictions = images * (width * (2 * min(width, images) + classes) + 2e6)  # 2e6: work outside of matrix products
    selection = 4e4 * min(images, max(MAX_SELECTED, 2 * min(classes, MAX_SELECTED))) * classes
    budget = BUDGET_OF_A_PHOTO if photos else BUDGET_OF_A_VECTOR
    return predictions + selection <= budget * max(1, images - int(previous.images))
