"""Everything that a fitted model consists of, and how its predictor follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from ..config.schema import build_predictor
from ..features import PREDICTORS, ClassStatistics, FittedPredictor, Groups, LinearPredictor, Predictor
from .evaluation import Evaluation, FittedClasses
from .labels import Label
from .parameters import training_free_predictor
from .photos import ClassPhotos
from .reader import NetworkReader
from .training import TrainingState
from .unknown import NoveltyCalibration, NoveltyDetector

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier


@dataclass(frozen=True)
class DeferredFit:
    """A fit of a training-free predictor that is computed when it is first needed, not in each learning step.

    Attributes:
        part: The predictor.
        classes: Statistics of each class.
        groups: Groups of near-duplicates of each class.
        seed: Seed of random numbers.
    """

    part: Predictor
    classes: list[ClassStatistics]
    groups: Groups
    seed: int

    def compute(self) -> FittedClasses:
        """Fit the predictor."""
        return FittedClasses(self.part.leave_out(self.classes, self.groups, self.seed), self.classes, self.groups)


@dataclass(frozen=True)
class ModelState:
    """Everything that a fitted model consists of besides its parameters.

    Attributes:
        reader: The network and its image format; None if the model reads features.
        statistics: Of the features of each class, in the order of `classes_`.
        predictor: What predicts from features; None for the classifier of the network itself, or if it is deferred.
        exemplars: Encoded images of each class, in rank order.
        training: Of a network that comes from a run or was trained; else None.
        photos: What is known of the photos of each class, in the order of their features; empty if the model reads
            features.
        evaluation: Predictions of the photos by classifiers computed without them; None if not measured.
        thumbnails: Small images of photos that look mislabelled, by identity.
        novelty: Calibration of the detection of unknown images; None if it was not measured with the predictor.
        deferred: The fit that gives `predictor` and `novelty`, if it was not needed yet; see `completed`.
    """

    reader: NetworkReader | None
    statistics: dict[Label, ClassStatistics]
    predictor: FittedPredictor | None
    exemplars: dict[Label, list[bytes]]
    training: TrainingState | None
    photos: dict[Label, ClassPhotos] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    thumbnails: dict[str, bytes] = field(default_factory=dict)
    novelty: NoveltyCalibration | None = None
    deferred: DeferredFit | None = None

    @cached_property
    def completed(self) -> ModelState:
        """The state with predictor and calibration, which are computed at the first access if they were deferred."""
        if self.deferred is None:
            return self
        fitted = self.deferred.compute()
        novelty = NoveltyDetector(fitted.classes).calibrate(fitted.classes, fitted.fit, fitted.groups)
        return replace(self, predictor=fitted.predictor, novelty=novelty, deferred=None)


def predictor_name(model: IncrementalClassifier, training: TrainingState) -> str:
    """Return the predictor that a trained model uses: that of its method, unless the model specifies another."""
    return model.predictor or str(training.config.get("predict", {}).get("predictor", "classifier"))


def statistics_predictor(name: str, training: TrainingState | None) -> Predictor:
    """Return a predictor that is fitted to class statistics, by its name or that of a training-free method.

    Options in the settings of a run or of training apply. `ncm` takes the place of the predictors of a network.
    """
    options = {} if training is None else training.config.get("predict", {}).get("options", {})
    if name in PREDICTORS and name in options:
        return build_predictor(name, options[name])
    return training_free_predictor(name) or build_predictor("ncm")


def fit_predictor(
    name: str, state: ModelState, seed: int, fitted: FittedClasses | None = None
) -> FittedPredictor | None:
    """Return the predictor of a model by name; None for `classifier`, the head of the network.

    `classifier` needs a head, and `nme` class means, of exactly these classes; otherwise `ncm` takes their place.
    `fitted` is the predictor of the statistics if it is known already.
    """
    reader, training, statistics = state.reader, state.training, state.statistics
    if name == "classifier" and reader is not None and reader.network.head.classes == len(statistics):
        return None
    if name == "nme" and training is not None and reader is not None and len(training.means) == len(statistics):
        scale = float(reader.network.head.scale.detach())
        means = training.means.float()
        return LinearPredictor(means, torch.zeros(len(means)), 1 / max(scale, 1e-6), unit=True)
    if fitted is None:
        part = statistics_predictor(name, training)
        fitted = FittedClasses.of(part, statistics, images=reader is not None, seed=seed)
    return fitted.predictor
