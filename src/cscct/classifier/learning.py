"""One learning step, with or without training. Everything is computed before the model changes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data.encoding import encode, within_budget
from ..data.inputs import Item
from ..data.registry import Progress
from ..errors import UserError
from ..features import ClassStatistics, FittedPredictor
from .evaluation import Evaluation
from .exemplars import held_out, join_held_out, split_held_out
from .labels import Label, check_one_kind
from .photos import ClassPhotos, Photo
from .reader import ImageOutputs
from .report import FOLDS, HELD_OUT_FOLD, LearnReport, without_fold
from .review import with_thumbnails
from .state import ModelState, fit_predictor, predictor_name, statistics_predictor
from .step import Step, read_by_class
from .training import TrainingData, settings_for, train, why_not_trainable
from .training_images import TrainingImages

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier


KNOWN_CLASSES_ONLY = (
    "The network was not trained, because all images are of known classes. They were added to the exemplars, the class "
    "means and the statistics, and are trained on together with the next new class."
)
NO_EXEMPLARS = (
    "The run stored no exemplars, so its method cannot continue. The network stays as it is, and all classes are now "
    "predicted by the nearest class mean (ncm)."
)


@dataclass(frozen=True)
class _HeldOut:
    """Predictions for held-out images, and their mean log-likelihood."""

    evaluation: Evaluation
    log_likelihood: float

    @property
    def accuracy(self) -> float:
        """Mean over classes in percent, so that classes with many images do not dominate."""
        table = self.evaluation
        correct = (table.predicted == table.true).double()
        shares = [float(correct[table.true == label].mean()) for label in table.true.unique()]
        return round(100 * sum(shares) / len(shares), 2) if shares else math.nan


def learn_step(
    model: IncrementalClassifier, images: TrainingImages, progress: Progress, *, evaluate: bool = True
) -> tuple[ModelState, LearnReport]:
    """Compute the state of a model after learning images, and the report of the step.

    Args:
        model: The model.
        images: The images.
        progress: Called with a description and two numbers.
        evaluate: Whether to measure the accuracy. Trained models always measure it.
    """
    state = model.state_
    check_one_kind(state.statistics, set(images.labels))
    training_free, trained = model.candidates()
    step = TrainingStep(model, state, images, progress, evaluate)
    if not trained:
        return step.without_training(training_free, [])
    if not images.labels:  # all are known
        return state, step.report(state.evaluation, state.evaluation, state.statistics, [])
    reason = step.why_not_trainable()
    if reason is None:
        return step.with_training(trained, training_free)
    if training_free:
        return step.without_training(training_free, [f"The network was not trained. {reason}"])
    if state.training is not None and not step.new:
        return step.without_training(predictor_name(model, state.training), [KNOWN_CLASSES_ONLY])
    if state.training is not None and state.training.labels and not any(state.exemplars.values()):
        return step.without_training("ncm", [NO_EXEMPLARS])
    raise UserError(f"{reason} Use a training-free method such as lda, or add images.")


class TrainingStep(Step):
    """A learning step that can train the network."""

    def why_not_trainable(self) -> str | None:
        """Return why the network cannot be trained on the new classes, or None."""
        counts = {label: len(self.members[label]) for label in self.new}
        return why_not_trainable(self._memory(), counts, held_out=self.holds_out)

    def _memory(self) -> dict[Label, list[bytes]]:
        """Return the exemplars of the known classes that may be trained on."""
        exemplars = {label: self.state.exemplars.get(label, []) for label in self.state.statistics}
        return {label: split_held_out(images)[0] if self.holds_out else images for label, images in exemplars.items()}

    def with_training(self, method: str, training_free: str) -> tuple[ModelState, LearnReport]:
        """Train the network on the new classes; with a training-free predictor to compare with, keep the better one."""
        model, old = self.model, self.state.completed
        assert old.reader is not None
        reuse = old.training if old.training is not None and old.training.config.get("method") == method else None
        settings = settings_for(model, old.reader, method) if reuse is None else reuse.settings(model.device)
        new_items = {label: self.images.items_of(self.members[label]) for label in self.new}
        split = {
            label: split_held_out(items) if len(items) >= FOLDS else (items, []) for label, items in new_items.items()
        }
        more = {label: self.images.items_of(i) for label, i in self.members.items() if label not in new_items}
        data = TrainingData(self._memory(), more, {label: trained for label, (trained, _) in split.items()})
        held: dict[Label, list[Item]] = {
            label: list(split_held_out(old.exemplars.get(label, []))[1]) if self.holds_out else []
            for label in old.statistics
        }
        before_outputs = read_by_class(old.reader, held)
        before = self._evaluated(before_outputs, old.predictor, list(old.statistics))
        held |= {label: list(items) for label, (_, items) in split.items()}
        result = train(old.reader, settings, reuse, data, self.progress)
        reader = old.reader.with_network(result.network)
        images = {label: [*result.exemplars[label], *held[label]] for label in data.memory} | new_items
        self.progress("evaluating", 0, 2)
        outputs = read_by_class(reader, images)
        name = predictor_name(model, result.state)
        keep = statistics_predictor(name, result.state).reads_samples
        statistics = {label: ClassStatistics.of(outputs[label].features, keep_samples=keep) for label in images}
        photo_of = self._photos_by_item()
        photos = {
            label: ClassPhotos(tuple(photo_of.get(id(item), Photo()) for item in items))
            for label, items in images.items()
        }
        trained = ModelState(reader, statistics, None, {}, result.state)
        predictor = fit_predictor(name, trained, model.random_state)
        self.progress("evaluating", 1, 2)
        positions = {label: torch.nonzero(held_out(len(items)))[:, 0] for label, items in new_items.items()}
        for label in data.memory:
            positions[label] = len(result.exemplars[label]) + torch.arange(len(held[label]))
        after = self._evaluated(read_by_class(reader, held), predictor, list(statistics), positions)
        figures = {method: after}
        if training_free:
            figures = {training_free: self._training_free(training_free, before_outputs), method: after}
        best = max(figures, key=lambda name: figures[name].log_likelihood)
        comparison = {
            "method": method,
            "kept": best == method,
            "accuracy": {name: _finite(figure.accuracy) for name, figure in figures.items()},
            "log_likelihood": {name: _finite(round(figure.log_likelihood, 4)) for name, figure in figures.items()},
            "seconds": round(time.perf_counter() - self.started, 1),
        }
        if best != method:
            state, report = self.without_training(training_free, [])
            return state, replace(report, training=comparison)
        interleave = join_held_out if self.holds_out else (lambda kept, _: list(kept))
        kept = {label: interleave(result.exemplars[label], held[label]) for label in images}
        encoded = {
            label: [encode(item, reader.format) for item in items[: self._quota(len(items))]]
            for label, items in kept.items()
        }
        exemplars = within_budget(encoded, model.memory_mb)
        for label, items in kept.items():
            ids = tuple(photo_of.get(id(item), Photo()).id for item in items[: len(exemplars[label])])
            photos[label] = replace(photos[label], exemplars=ids)
        stored = {label: rows[: len(self._trainable(exemplars[label]))] for label, rows in result.state.stored.items()}
        training = replace(result.state, stored=stored, held_out=self.holds_out)
        self.progress("evaluating", 2, 2)
        notes = []
        if not self.holds_out and old.statistics:
            notes.append(
                "Accuracy is measured for the new classes only: all stored images of the other classes were trained on."
            )
        report = self.report(before.evaluation, after.evaluation, statistics, notes)
        state = ModelState(reader, statistics, predictor, exemplars, training, photos, after.evaluation)
        return with_thumbnails(state, self.images, model.memory_mb), replace(report, training=comparison)

    def _photos_by_item(self) -> dict[int, Photo]:
        """Photos of the stored images and of the images of this step, by the identity of the object."""
        photos = {id(item): photo for item, photo in zip(self.images.items, self.images.photos, strict=True)}
        for label, exemplars in self.state.exemplars.items():
            known = self.state.photos.get(label, ClassPhotos())
            by_id = {photo.id: photo for photo in known.photos}
            photos |= {id(item): by_id.get(key, Photo()) for item, key in zip(exemplars, known.exemplars, strict=False)}
        return photos

    def _quota(self, available: int) -> int:
        return min(available, self.model.memory_per_class) if self.holds_out else available

    def _trainable(self, images: Sequence[bytes]) -> Sequence[bytes]:
        return split_held_out(images)[0] if self.holds_out else images

    def _training_free(self, predictor: str, old: Mapping[Label, ImageOutputs]) -> _HeldOut:
        """Evaluate a training-free predictor of the current network on the held-out images."""
        rest, held = {}, {}
        part = statistics_predictor(predictor, self.state.training)
        for label, stats in self._extended(predictor).items():
            rest[label], held[label] = without_fold(stats, HELD_OUT_FOLD)
            if stats.samples is None and label in old:
                held[label] = old[label].features
            if label in self.new and len(self.members[label]) >= FOLDS:
                rows, flags = self.images.features[self.members[label]], held_out(len(self.members[label]))
                rest[label] = ClassStatistics.of(rows[~flags], keep_samples=part.reads_samples)
                held[label] = rows[flags]
        head = part.fit(list(rest.values()), self.model.random_state)
        scores = {label: head.log_probabilities(rows) for label, rows in held.items() if len(rows)}
        return _held_out(scores, list(rest), {})

    def _evaluated(
        self,
        outputs: Mapping[Label, ImageOutputs],
        head: FittedPredictor | None,
        labels: Sequence[Label],
        positions: Mapping[Label, Tensor] | None = None,
    ) -> _HeldOut:
        scores = {}
        for label, output in outputs.items():
            if len(output.features):
                logits = output.logits.log_softmax(dim=1)
                scores[label] = logits if head is None else head.log_probabilities(output.features)
        return _held_out(scores, labels, positions or {})


def _held_out(scores: Mapping[Label, Tensor], labels: Sequence[Label], positions: Mapping[Label, Tensor]) -> _HeldOut:
    """scores: log-probabilities (n, classes) of the held-out images of each class. positions: of these images in their
    class, where known."""
    parts, likelihoods = [], []
    for label, rows in scores.items():
        where = positions.get(label, torch.empty(0))
        where = where if len(where) == len(rows) else torch.full((len(rows),), -1)
        parts.append((labels.index(label), where, rows))
        likelihoods.append(rows[:, labels.index(label)])
    mean = float(torch.cat(likelihoods).mean()) if likelihoods else -math.inf
    return _HeldOut(Evaluation.of(parts, 0), mean)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
