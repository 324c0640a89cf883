"""What a step of learning did: accuracies before and after, new confusions, classes that resemble each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from ..errors import UserError
from ..predictors import ClassStatistics, LinearPredictor
from .images import Problem
from .labels import Label

FOLDS = 5
SIMILAR = 3
Predictor = Callable[[Sequence[ClassStatistics]], LinearPredictor]
Statistics = Mapping[Label, ClassStatistics]
Confusion = dict[Label, Counter[Label]]  # of each true class, how often each class was predicted
Accuracy = dict[str, list[int]]  # of each class: right, count


@dataclass(frozen=True)
class LearnReport:
    """The result of `learn` or `forget`. Labels are texts here.

    Accuracies are cross-validated over the stored features (5 folds), so no image is spent on them. Classes of which
    only sums are kept (more images than dimensions) are tested on their exemplars, a small part of what is in the sums.
    Classes with one image, or with sums and no exemplars, are not tested: 0 of 0. Where the network was fine-tuned,
    only images held back from that are tested.

    Attributes:
        new: Classes learned for the first time.
        extended: Known classes with more images.
        forgotten: Classes that were taken away.
        images: Images learned in this step, by class.
        before: Right answers and images tested of the classes known before, with the previous model.
        after: The same for all classes, with the new model.
        confusions: True class, predicted class, count: those that are there now and were not before.
        similar: For each new class the nearest old ones, with the cosine of the class means.
        finetune: What fine-tuning reached, if it was tried.
        problems: What is wrong with images.
        notes: Sentences that a person should read.
        seconds: It took.
    """

    new: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)
    before: Accuracy = field(default_factory=dict)
    after: Accuracy = field(default_factory=dict)
    confusions: list[tuple[str, str, int]] = field(default_factory=list)
    similar: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    finetune: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    def renamed(self, names: Mapping[str, str]) -> LearnReport:
        """With other labels. names: `{old: new}`."""

        def new(label: str) -> str:
            return names.get(label, label)

        return replace(
            self,
            new=[new(label) for label in self.new],
            extended=[new(label) for label in self.extended],
            images={new(label): count for label, count in self.images.items()},
            before={new(label): pair for label, pair in self.before.items()},
            after={new(label): pair for label, pair in self.after.items()},
            confusions=[(new(true), new(predicted), count) for true, predicted, count in self.confusions],
            similar={new(label): [(new(one), cosine) for one, cosine in near] for label, near in self.similar.items()},
        )

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> LearnReport:
        """From what `as_dict` gave."""
        try:
            return TypeAdapter(LearnReport).validate_python(dict(values))
        except ValidationError as error:
            raise UserError(f"The report in the model is damaged: {error.errors()[0]['msg']}.") from error


def cross_validate(
    statistics: Statistics,
    predictor: Predictor,
    folds: Sequence[int] = range(FOLDS),
    exemplars: Mapping[Label, Tensor] | None = None,
) -> Confusion:
    """Each image is predicted by a model that has not seen it nor a fifth of the others.

    folds: only these; the last is that of the images held back from fine-tuning. exemplars: features of some images of
    classes of which only sums are kept; they are predicted by a model that has seen them.
    """
    labels = list(statistics)
    found: Confusion = {label: Counter() for label in labels}
    for fold in folds:
        parts = {label: without_fold(one, fold) for label, one in statistics.items()}
        tested = [(label, rows) for label, (_, rows) in parts.items() if len(rows)]
        if not tested:
            continue
        head = predictor([rest for rest, _ in parts.values()])
        for label, rows in tested:
            found[label].update(labels[i] for i in head.scores(rows).argmax(dim=1).tolist())
    known = {label: rows for label, rows in (exemplars or {}).items() if label in statistics}
    if known:
        head = predictor(list(statistics.values()))
        for label, rows in known.items():
            found[label].update(labels[i] for i in head.scores(rows).argmax(dim=1).tolist())
    return found


def without_fold(one: ClassStatistics, fold: int) -> tuple[ClassStatistics, Tensor]:
    """Statistics without a fold of the images, and the features of that fold."""
    samples = one.samples
    if samples is None or one.count < 2:
        return one, torch.empty(0)
    out = torch.arange(one.count) % FOLDS == fold
    return (ClassStatistics.of(samples[~out]) if out.any() else one), samples[out]


def accuracies(confusion: Confusion) -> Accuracy:
    """Right answers and images tested of each class."""
    return {str(label): [counts[label], counts.total()] for label, counts in confusion.items()}


def new_confusions(before: Confusion, after: Confusion) -> list[tuple[str, str, int]]:
    """The most frequent first."""
    found = [
        (str(true), str(predicted), count)
        for true, counts in after.items()
        for predicted, count in counts.items()
        if predicted != true and not before.get(true, Counter())[predicted]
    ]
    return sorted(found, key=lambda one: (-one[2], one[:2]))


def similar_classes(statistics: Statistics, new: Sequence[Label]) -> dict[str, list[tuple[str, float]]]:
    """For each new class the old ones whose means have the largest cosines with its own."""
    means = {label: F.normalize(one.directions, dim=0) for label, one in statistics.items()}
    old = [label for label in statistics if label not in set(new)]
    if not old:
        return {str(label): [] for label in new}
    rows = torch.stack([means[label] for label in old])
    found = {}
    for label in new:
        cosines = rows @ means[label]
        top = cosines.topk(min(SIMILAR, len(old))).indices.tolist()
        found[str(label)] = [(str(old[i]), round(float(cosines[i]), 4)) for i in top]
    return found
