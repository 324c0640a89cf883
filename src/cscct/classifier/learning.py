"""One step of learning. All of it is computed before anything of the classifier is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..data.registry import Progress
from ..predictors import PREDICTORS, ClassStatistics, LinearPredictor
from .exemplars import chosen_exemplars, within_budget
from .finetune import HELD_BACK_FOLD, try_finetuning
from .inputs import Given
from .labels import Label, check_one_kind
from .report import (
    FOLDS,
    Confusion,
    LearnReport,
    Statistics,
    accuracies,
    cross_validate,
    new_confusions,
    similar_classes,
)

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier


@dataclass(frozen=True)
class Learned:
    """The state of a classifier after a step."""

    statistics: dict[Label, ClassStatistics]
    exemplars: dict[Label, list[bytes]]
    head: LinearPredictor
    backbone: nn.Module | None  # where fine-tuning changed it
    tuned: list[Label]
    report: LearnReport


def learned(model: IncrementalClassifier, given: Given, progress: Progress) -> Learned:
    """What a classifier becomes by learning images."""
    known: dict[Label, ClassStatistics] = getattr(model, "statistics_", {})
    tuned: list[Label] = getattr(model, "tuned_", [])
    arriving = sorted(set(given.labels))
    check_one_kind(known, arriving)
    members = {label: [i for i, one in enumerate(given.labels) if one == label] for label in arriving}
    items = {label: [given.items[i] for i in members[label]] if given.items else [] for label in arriving}
    statistics = dict(known)
    for label in arriving:
        rows = given.features[members[label]]
        statistics[label] = known[label].extended(rows) if label in known else ClassStatistics.of(rows)
    exemplars = _exemplars(model, given, members, progress)
    new = {label: items[label] for label in arriving if label not in known}
    outcome, notes = try_finetuning(model, statistics, exemplars, new, progress)
    progress("measuring", 0, 2)
    shown = _exemplar_features(model, statistics, exemplars, tuned)
    before = _measured(model, known, tuned, shown)
    progress("measuring", 1, 2)
    if outcome is not None and outcome.kept:
        statistics, tuned, after = outcome.statistics, list(outcome.statistics), outcome.confusion
    else:
        after = _measured(model, statistics, tuned, shown)
    progress("measuring", 2, 2)
    report = LearnReport(
        new=[str(label) for label in new],
        extended=[str(label) for label in arriving if label in known],
        images={str(label): len(members[label]) for label in arriving},
        before=accuracies(before),
        after=accuracies(after),
        confusions=new_confusions(before, after),
        similar=similar_classes(statistics, list(new)),
        finetune=None if outcome is None else outcome.figures,
        problems=given.problems,
        notes=notes,
    )
    head = PREDICTORS[model.predictor](list(statistics.values()))
    backbone = outcome.backbone if outcome is not None and outcome.kept else None
    return Learned(statistics, exemplars, head, backbone, tuned, report)


def _exemplars(
    model: IncrementalClassifier, given: Given, members: dict[Label, list[int]], progress: Progress
) -> dict[Label, list[bytes]]:
    """Of all classes, within the budget."""
    exemplars: dict[Label, list[bytes]] = dict(getattr(model, "exemplars_", {}))
    if not given.items or not model.memory_mb or not model.memory_per_class:
        return within_budget(exemplars, model.memory_mb)
    known: Statistics = getattr(model, "statistics_", {})
    for number, (label, indices) in enumerate(members.items()):
        count = known[label].count if label in known else 0
        new = given.features[indices], [given.items[i] for i in indices]
        kept = exemplars.get(label, [])
        exemplars[label] = chosen_exemplars(model._extractor, kept, count, new, model.memory_per_class)
        progress("choosing exemplars", number + 1, len(members))
    return within_budget(exemplars, model.memory_mb)


def _exemplar_features(
    model: IncrementalClassifier, statistics: Statistics, exemplars: dict[Label, list[bytes]], tuned: list[Label]
) -> dict[Label, Tensor]:
    """Features of the exemplars of classes of which only sums are kept; in a fine-tuned model of those held back."""
    first, every = (HELD_BACK_FOLD, FOLDS) if tuned else (0, 1)
    chosen = {label: exemplars.get(label, [])[first::every] for label, one in statistics.items() if one.samples is None}
    return {label: model._extractor.extract(images).features for label, images in chosen.items() if images}


def _measured(
    model: IncrementalClassifier, statistics: Statistics, tuned: list[Label], exemplars: dict[Label, Tensor]
) -> Confusion:
    """Where the network was fine-tuned, only images that it was not trained on tell anything."""
    folds = (HELD_BACK_FOLD,) if tuned else range(FOLDS)
    return cross_validate(statistics, PREDICTORS[model.predictor], folds, exemplars) if statistics else {}
