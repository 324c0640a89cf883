"""A learning step without training: statistics, exemplars, predictor and evaluation of the new state."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data.encoding import encode, within_budget
from ..data.inputs import Item
from ..data.registry import Progress, no_progress
from ..features import ClassStatistics, herd
from .evaluation import (
    Evaluation,
    FittedClasses,
    Statistics,
    accuracies,
    count_duplicates,
    duplicate_groups,
    worth_measuring,
)
from .exemplars import choose_exemplars, held_out
from .labels import Label
from .photos import ClassPhotos
from .reader import ImageOutputs, NetworkReader
from .report import FOLDS, HELD_OUT_FOLD, LearnReport, new_confusions, similar_classes
from .review import with_thumbnails
from .state import DeferredFit, ModelState, fit_predictor, predictor_name, statistics_predictor
from .training_images import TrainingImages
from .unknown import NoveltyDetector

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

NOT_MEASURED = (
    "The accuracy was not measured again: for a model of this size it is measured when more images were learned, at "
    "the latest when their number has grown by 10 %. The figures are those of the last measurement; `cscct test` "
    "measures on images of your own."
)


def refitted(model: IncrementalClassifier, state: ModelState) -> tuple[ModelState, LearnReport]:
    """Return a state with predictor, exemplars and evaluation that belong to its statistics.

    Args:
        model: The model, for its parameters.
        state: State whose statistics changed.
    """
    images = TrainingImages(torch.empty(0), [])
    state = replace(state, evaluation=Evaluation.of([], 0))
    training_free, _ = model.candidates()
    name = training_free or (predictor_name(model, state.training) if state.training else "ncm")
    return Step(model, state, images, no_progress, evaluate=True).without_training(name, [])


class Step:
    """The images of a learning step by class, and the learning step without training."""

    def __init__(
        self,
        model: IncrementalClassifier,
        state: ModelState,
        images: TrainingImages,
        progress: Progress,
        evaluate: bool,
    ):
        self.model, self.state, self.images, self.progress, self.evaluate = model, state, images, progress, evaluate
        self.members = images.by_class()
        self.new = [label for label in self.members if label not in state.statistics]
        self.started = time.perf_counter()
        training = state.training
        self.holds_out = training.held_out if training is not None and training.labels else True
        self._exemplar_features: dict[Label, Tensor] = {}

    def without_training(self, predictor: str, notes: list[str]) -> tuple[ModelState, LearnReport]:
        """Extend the statistics and exemplars; the network stays as it is."""
        statistics = self._extended(predictor)
        measures = self.evaluate and worth_measuring(
            statistics, self.state.evaluation, photos=self.state.reader is not None
        )
        photos = self._extended_photos()
        exemplars = self._extended_exemplars(statistics, photos, measures)
        training = self.state.training
        if training is not None:
            means = torch.stack([_direction(s) for s in statistics.values()]).float()
            stored = {label: rows for label, rows in training.stored.items() if label not in self.members}
            training = replace(training, means=means, stored=stored)
        self.progress("evaluating", 0, 1)
        before = self._before(predictor)
        deferred = self._deferred(predictor, statistics)
        state = replace(
            self.state,
            statistics=statistics,
            predictor=None,
            exemplars=exemplars,
            training=training,
            photos=photos,
            evaluation=before,
            novelty=None,
            deferred=deferred,
        )
        if measures or training is not None or not _can_wait(deferred):
            fitted = deferred.compute()
            head = fit_predictor(predictor, state, self.model.random_state, fitted)
            state = replace(state, predictor=head, deferred=None)
            if measures:
                state = replace(state, evaluation=self._measured(fitted, list(statistics)))
            if training is None:  # images that a network was trained on say little about unknown ones
                novelty = NoveltyDetector(fitted.classes).calibrate(fitted.classes, fitted.fit, fitted.groups)
                state = replace(state, novelty=novelty)
        if measures:
            state = with_thumbnails(state, self.images, self.model.memory_mb)
        elif self.evaluate and self.images.labels:  # with known images only, there is nothing to measure
            notes = [*notes, NOT_MEASURED]
        self.progress("evaluating", 1, 1)
        report = self.report(before, state.evaluation, statistics, notes)
        detection = None if state.novelty is None else state.novelty.detection_rate()
        near = count_duplicates(statistics, deferred.groups)
        return state, replace(report, near_duplicates=near, unknown_detection=detection)

    def _extended(self, predictor: str) -> dict[Label, ClassStatistics]:
        statistics = dict(self.state.statistics)
        keep = statistics_predictor(predictor, self.state.training).reads_samples
        for label, indices in self.members.items():
            rows = self.images.features[indices]
            known = statistics.get(label)
            known = ClassStatistics.of(rows[:0]) if known is None else known
            statistics[label] = known.extended(rows, keep_samples=keep)
        return statistics

    def _extended_photos(self) -> dict[Label, ClassPhotos]:
        if not self.images.photos:
            return dict(self.state.photos)
        photos = {
            label: self.state.photos.get(label, ClassPhotos()).padded(stats.count)
            for label, stats in self.state.statistics.items()
        }
        for label, indices in self.members.items():
            known = photos.get(label, ClassPhotos())
            photos[label] = replace(known, photos=(*known.photos, *(self.images.photos[index] for index in indices)))
        return photos

    def _extended_exemplars(
        self, statistics: Statistics, photos: dict[Label, ClassPhotos], measures: bool
    ) -> dict[Label, list[bytes]]:
        """Exemplars of all classes within the budget; their identities are added to `photos`. Each kept exemplar is
        read at most once; if accuracy is measured, its features serve classes of which only sums are kept."""
        model, reader = self.model, self.state.reader
        exemplars = dict(self.state.exemplars)
        if reader is None:
            return within_budget(exemplars, model.memory_mb)
        summed = {label for label, stats in statistics.items() if measures and stats.samples is None}
        needed = [label for label in exemplars if label in self.members or label in summed]
        features = read_by_class(reader, {label: exemplars[label] for label in needed}) if needed else {}
        if model.memory_mb and model.memory_per_class:
            for number, (label, indices) in enumerate(self.members.items()):
                kept = exemplars.get(label, [])
                rows = torch.cat([features[label].features, self.images.features[indices]]) if kept else None
                rows = self.images.features[indices] if rows is None else rows
                learned = self.state.statistics[label].count if label in self.state.statistics else 0
                flags = torch.cat([held_out(len(kept)), held_out(len(indices), learned)])
                candidates: list[Item] = [*kept, *self.images.items_of(indices)]
                count = model.memory_per_class
                chosen = choose_exemplars(rows, flags, count) if self.holds_out else herd(rows, count, "icarl")
                exemplars[label] = [encode(candidates[index], reader.format) for index in chosen]
                ids = [*photos[label].exemplar_ids(len(kept)), *(self.images.photos[i].id for i in indices)]
                photos[label] = replace(photos[label], exemplars=tuple(ids[index] for index in chosen))
                self._exemplar_features[label] = rows[chosen]
                self.progress("choosing exemplars", number + 1, len(self.members))
        exemplars = within_budget(exemplars, model.memory_mb)
        for label, outputs in features.items():
            self._exemplar_features.setdefault(label, outputs.features)
        return exemplars

    def _before(self, predictor: str) -> Evaluation | None:
        """The stored evaluation of the current model; measured if it has none."""
        known = self.state.statistics
        if self.state.evaluation is not None or not known or not self.evaluate:
            return self.state.evaluation
        return self._measured(self._deferred(predictor, known).compute(), list(known))

    def _deferred(self, predictor: str, statistics: Statistics) -> DeferredFit:
        part, classes = statistics_predictor(predictor, self.state.training), list(statistics.values())
        groups = duplicate_groups(classes, images=self.state.reader is not None)
        return DeferredFit(part, classes, groups, self.model.random_state)

    def _measured(self, fitted: FittedClasses, labels: Sequence[Label]) -> Evaluation:
        """Cross-validated predictions. In a trained model only images that were never trained on are meaningful."""
        trained = self.state.training is not None and bool(self.state.training.labels)
        if trained and not self.holds_out:
            return Evaluation.of([], sum(stats.count for stats in fitted.classes))
        first, every = (HELD_OUT_FOLD, FOLDS) if trained else (0, 1)
        tested = [held_out(stats.count) for stats in fitted.classes] if trained else None
        exemplars = {
            labels.index(label): rows[first::every]
            for label, rows in self._exemplar_features.items()
            if label in labels
        }
        return fitted.evaluate(exemplars, tested)

    def report(
        self, before: Evaluation | None, after: Evaluation | None, statistics: Statistics, notes: list[str]
    ) -> LearnReport:
        """Return the report of the step."""
        known, labels = list(self.state.statistics), list(statistics)
        old = before.confusion(known) if before is not None else {}
        new = after.confusion(labels) if after is not None and after is not before else {}
        new = {label: old.get(label, Counter()) for label in labels} if before is not None and after is before else new
        return LearnReport(
            new=[str(label) for label in self.new],
            extended=[str(label) for label in self.members if label not in self.new],
            images={str(label): len(indices) for label, indices in self.members.items()},
            known={str(label): count for label, count in self.images.known.items()},
            before=accuracies(old),
            after=accuracies(new),
            confusions=new_confusions(old, new),
            similar=similar_classes(statistics, self.new),
            problems=self.images.problems,
            notes=notes,
        )


def _can_wait(deferred: DeferredFit) -> bool:
    """Return whether a fit cannot fail for lack of samples, in which case the learning step must fail."""
    return not deferred.part.reads_samples or all(stats.samples is not None for stats in deferred.classes)


def _direction(statistics: ClassStatistics) -> Tensor:
    return torch.nn.functional.normalize(statistics.directions, dim=0)


def read_by_class(reader: NetworkReader, images: Mapping[Label, Sequence[Item]]) -> dict[Label, ImageOutputs]:
    """Read the images of all classes in one pass."""
    outputs = reader.read([item for items in images.values() for item in items])
    outputs.raise_first_error()
    sizes = [len(items) for items in images.values()]
    parts = zip(images, outputs.features.split(sizes), outputs.logits.split(sizes), strict=True)
    return {label: ImageOutputs(features, logits) for label, features, logits in parts}
