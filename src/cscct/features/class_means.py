"""Class means of unit features, and the nearest-class-mean predictor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from .left_out import Groups, LeftOutSamples, select_samples
from .linear import LinearPredictor, calibrate
from .statistics import ClassStatistics

DEFAULT_TEMPERATURE = 0.05  # for classes without samples to calibrate on


def class_mean(features: Tensor, second_view: Tensor | None = None) -> Tensor:
    """Return the normalised mean of the unit features of a class.

    Args:
        features: Features of the samples, shape (n, d).
        second_view: Features of a second view of the samples, shape (n, d). The mean of their unit features is averaged
            with the first mean before the result is normalised.

    Returns:
        Unit vector, shape (d,), with the dtype of `features`.
    """
    mean = F.normalize(features, dim=1).mean(dim=0)
    if second_view is not None:
        mean = (mean + F.normalize(second_view, dim=1).mean(dim=0)) / 2
    return F.normalize(mean, dim=0)


def nearest_mean(means: Tensor, temperature: float = DEFAULT_TEMPERATURE) -> LinearPredictor:
    """Return the predictor that selects the class with the nearest mean.

    Args:
        means: Unit class means, shape (classes, d).
        temperature: Divisor that turns the cosine similarities into logits.

    Returns:
        Predictor whose scores are the cosine similarities to the class means.
    """
    return LinearPredictor(means, torch.zeros(len(means), dtype=means.dtype), temperature, unit=True)


def ncm(classes: Sequence[ClassStatistics]) -> LinearPredictor:
    """Fit a nearest-class-mean predictor.

    The temperature minimises the leave-one-out cross-entropy of the samples that the statistics contain.

    Args:
        classes: Statistics of each class, in the order of the labels.

    Returns:
        Predictor with float32 weights, shape (classes, d).
    """
    return fit_ncm(classes).predictor


def fit_ncm(classes: Sequence[ClassStatistics], groups: Groups | None = None) -> NearestMeanFit:
    """Fit a nearest-class-mean predictor, with a temperature selected without near-duplicates.

    Args:
        classes: Statistics of each class, in the order of the labels.
        groups: Groups of near-duplicates; None if there are none.
    """
    fit = NearestMeanFit(torch.stack([stats.directions for stats in classes]), DEFAULT_TEMPERATURE)
    samples = select_samples(classes, groups)
    calibration = calibrate(fit.left_out_scores(samples), samples.labels[samples.tested])
    return replace(fit, temperature=calibration.temperature or DEFAULT_TEMPERATURE)


@dataclass(frozen=True)
class NearestMeanFit:
    """A fitted nearest-class-mean predictor.

    Attributes:
        sums: Sums of the unit features of each class, shape (classes, d), float64.
        temperature: Divisor that turns the cosine similarities into logits.
    """

    sums: Tensor
    temperature: float

    @cached_property
    def means(self) -> Tensor:
        """Unit class means, shape (classes, d), float64."""
        return F.normalize(self.sums, dim=1)

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor fitted to all samples."""
        return nearest_mean(self.means.float(), self.temperature)

    def left_out_scores(self, samples: LeftOutSamples) -> Tensor:
        """Return the cosine similarities of the tested samples to class means without their groups, (k, classes)."""
        unit = F.normalize(samples.rows, dim=1)
        removed = unit.clone()
        for members in samples.groups:
            removed[members] = unit[members].sum(dim=0)
        unit, removed, labels = unit[samples.tested], removed[samples.tested], samples.labels[samples.tested]
        scores = unit @ self.means.T
        own = (unit * F.normalize(self.sums[labels] - removed, dim=1)).sum(dim=1)
        scores[torch.arange(len(labels)), labels] = own
        return scores
