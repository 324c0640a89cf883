"""Report of a learning step: accuracy before and after, new confusions and similar classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from ..data.inputs import InputProblem
from ..errors import UserError
from ..features import ClassStatistics
from .evaluation import Accuracy, Confusion, Statistics
from .labels import Label

FOLDS = 5
HELD_OUT_FOLD = FOLDS - 1  # the fold of the images that are held out from training
SIMILAR = 3


@dataclass(frozen=True)
class LearnReport:
    """Result of `learn` or `forget`. All labels are strings.

    Accuracies are cross-validated: each image is predicted by a classifier computed without it and without its
    near-duplicates, so no images are reserved for testing. Classes with only aggregated statistics (more images than
    feature dimensions) are tested on their exemplars, which are also part of the statistics. Classes with a single
    image, or only near-duplicates of one, or with aggregated statistics and no exemplars, and a single class are not
    tested ([0, 0]). If the network was fine-tuned, only held-out images are tested.

    Attributes:
        new: New classes.
        extended: Existing classes with additional images.
        forgotten: Removed classes.
        images: Number of images learned in this step, by class.
        known: Number of images that the model had already and that were left out, by class.
        near_duplicates: Number of images of each class that are near-duplicates of others; they are tested together.
        before: Correct predictions and tested images of the previous classes, with the previous model.
        after: Correct predictions and tested images of all classes, with the new model.
        confusions: New confusions as (true class, predicted class, count).
        similar: For each new class, the most similar previous classes with the cosine similarity of the class means.
        unknown_detection: Expected share of images of other classes that are reported as unknown, at 5 % false alarms;
            None if it was not measured.
        training: Method, accuracy and log-likelihood on held-out images of the trained and of the training-free
            predictor, and whether the trained predictor is used; None without training.
        problems: Problems of the input images.
        notes: Messages for the user.
        seconds: Duration of the step.
    """

    new: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    near_duplicates: dict[str, int] = field(default_factory=dict)
    before: Accuracy = field(default_factory=dict)
    after: Accuracy = field(default_factory=dict)
    confusions: list[tuple[str, str, int]] = field(default_factory=list)
    similar: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    unknown_detection: float | None = None
    training: dict[str, Any] | None = None
    problems: list[InputProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dict."""
        return asdict(self)

    def renamed(self, names: Mapping[str, str]) -> LearnReport:
        """Return a copy with renamed classes.

        Args:
            names: New names by old names.
        """

        def new(label: str) -> str:
            return names.get(label, label)

        return replace(
            self,
            new=[new(label) for label in self.new],
            extended=[new(label) for label in self.extended],
            images={new(label): count for label, count in self.images.items()},
            known={new(label): count for label, count in self.known.items()},
            near_duplicates={new(label): count for label, count in self.near_duplicates.items()},
            before={new(label): pair for label, pair in self.before.items()},
            after={new(label): pair for label, pair in self.after.items()},
            confusions=[(new(true), new(predicted), count) for true, predicted, count in self.confusions],
            similar={new(label): [(new(old), cosine) for old, cosine in near] for label, near in self.similar.items()},
        )

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> LearnReport:
        """Create a report from the result of `as_dict`.

        Raises:
            UserError: If the values are invalid.
        """
        try:
            return TypeAdapter(LearnReport).validate_python(dict(values))
        except ValidationError as error:
            raise UserError(f"The report in the model is damaged: {error.errors()[0]['msg']}.") from error


def without_fold(stats: ClassStatistics, fold: int) -> tuple[ClassStatistics, Tensor]:
    """Split off a fold of the images of a class.

    Args:
        stats: Statistics of the class.
        fold: Number of the fold.

    Returns:
        Statistics without the fold, and the features (k, d) of the fold. The features are empty if the class has a
        single image or only aggregated statistics.
    """
    samples = stats.samples
    if samples is None or stats.count < 2:
        return stats, torch.empty(0)
    held_out = torch.arange(stats.count) % FOLDS == fold
    keep = stats.count > samples.shape[1]
    rest = ClassStatistics.of(samples[~held_out], keep_samples=keep) if held_out.any() else stats
    return rest, samples[held_out]


def new_confusions(before: Confusion, after: Confusion) -> list[tuple[str, str, int]]:
    """Return confusions that occur after a step but not before, most frequent first.

    Args:
        before: Confusion counts of the previous model.
        after: Confusion counts of the new model.

    Returns:
        Tuples (true class, predicted class, count).
    """
    confusions = [
        (str(true), str(predicted), count)
        for true, counts in after.items()
        for predicted, count in counts.items()
        if predicted != true and not before.get(true, Counter())[predicted]
    ]
    return sorted(confusions, key=lambda confusion: (-confusion[2], confusion[:2]))


def similar_classes(statistics: Statistics, new: Sequence[Label]) -> dict[str, list[tuple[str, float]]]:
    """Return the most similar previous classes of each new class.

    Args:
        statistics: Statistics of all classes.
        new: Labels of the new classes.

    Returns:
        For each new class, pairs of a previous class and the cosine similarity of the class means, most similar first.
    """
    added = set(new)
    old = [label for label in statistics if label not in added]
    if not old:
        return {str(label): [] for label in new}
    rows = F.normalize(torch.stack([statistics[label].directions for label in old]), dim=1)
    similar = {}
    for label in new:
        cosines = rows @ F.normalize(statistics[label].directions, dim=0)
        top = cosines.topk(min(SIMILAR, len(old))).indices.tolist()
        similar[str(label)] = [(str(old[i]), round(float(cosines[i]), 4)) for i in top]
    return similar


def percent(correct: int, count: int) -> str:
    """Return an accuracy in percent, which is 100.0 only if everything is correct.

    Args:
        correct: Number of correct predictions.
        count: Number of predictions.
    """
    if not count:
        return "not measured"
    return f"{100 * correct / count:.1f} %" if correct == count else f"{min(99.9, 100 * correct / count):.1f} %"
