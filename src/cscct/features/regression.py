"""Ridge regression."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .left_out import Groups, LeftOutSamples, select_samples
from .linear import LinearPredictor, calibrate
from .statistics import ClassStatistics, counts_and_means, gram_spectrum

PENALTIES = [2.0**k for k in range(-12, 13)]  # candidates, as multiples of the mean eigenvalue
DEFAULT_TEMPERATURE = 0.06  # for classes without samples to calibrate on


def ridge(
    classes: Sequence[ClassStatistics],
    penalty: float | None = None,
    *,
    intercept: bool = True,
    factors: Sequence[float] = PENALTIES,
) -> LinearPredictor:
    """Fit ridge regression onto the class indicators.

    Args:
        classes: Statistics of each class, in the order of the labels.
        penalty: Penalty on the squared weights. By default the candidate with the smallest leave-one-out squared error,
            or, if no samples are stored, the smallest generalised cross-validation error.
        intercept: Whether there is an intercept, which is not penalised. Without it, samples are needed to select the
            penalty.
        factors: Candidates for the penalty, as multiples of the mean eigenvalue.

    Returns:
        Predictor with float32 weights, shape (classes, d).
    """
    return fit_ridge(classes, None, penalty, intercept=intercept, factors=factors).predictor


def fit_ridge(
    classes: Sequence[ClassStatistics],
    groups: Groups | None = None,
    penalty: float | None = None,
    *,
    intercept: bool = True,
    factors: Sequence[float] = PENALTIES,
) -> RidgeFit:
    """Fit ridge regression, with penalty and temperature selected without near-duplicates.

    Args:
        classes: Statistics of each class, in the order of the labels.
        groups: Groups of near-duplicates; None if there are none.
        penalty: Penalty on the squared weights; see `ridge`.
        intercept: Whether there is an intercept.
        factors: Candidates for the penalty.
    """
    fit = RidgeFit(classes, intercept)
    samples = select_samples(classes, groups)
    labels = samples.labels[samples.tested]
    truth = F.one_hot(labels, len(classes)).double()
    prepared = fit.prepare(samples)

    def left_out_error(penalty: float) -> float:
        return float(((truth - fit.scores_without_groups(prepared, samples, penalty)) ** 2).sum())

    if penalty is None:
        scale = float(fit.values.mean()) if len(fit.values) else 1.0
        has_samples = any(stats.samples is not None for stats in classes)
        error = left_out_error if len(labels) else fit.generalised_error
        candidates = [scale * factor for factor in factors]
        penalty = scale if has_samples and not len(labels) else min(candidates, key=error)
    fit.penalty = penalty
    scores = fit.scores_without_groups(prepared, samples, penalty)
    fit.temperature = calibrate(scores, labels).temperature or DEFAULT_TEMPERATURE
    return fit


class RidgeFit:
    """Ridge regression in the eigenbasis of the scatter matrix of all features.

    Attributes:
        values: Eigenvalues, shape (r,).
        penalty: Penalty on the squared weights.
        temperature: Divisor that turns the scores into logits.
    """

    def __init__(self, classes: Sequence[ClassStatistics], intercept: bool = True):
        counts, means = counts_and_means(classes)
        self.n = float(counts.sum())
        self.centre, self.share = (counts @ means) / self.n * intercept, counts / self.n * intercept
        self.constant = intercept / self.n  # leverage of the intercept
        products = (means - self.centre).T * counts  # centred features times indicators, (d, classes)
        blocks = [stats.centred for stats in classes] + [counts.sqrt()[:, None] * (means - self.centre)]
        self.values, self.basis = gram_spectrum(blocks)
        self.rotated = self.basis.T @ products
        self.penalty, self.temperature = 1.0, DEFAULT_TEMPERATURE

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor fitted to all samples."""
        weight = (self.basis @ self._shrunk(self.penalty)).T
        return LinearPredictor(weight.float(), (self.share - weight @ self.centre).float(), self.temperature)

    def _shrunk(self, penalty: float) -> Tensor:
        return self.rotated / (self.values + penalty)[:, None]

    def prepare(self, samples: LeftOutSamples) -> Tensor:
        """Return the samples in the eigenbasis, shape (n, r)."""
        return (samples.rows - self.centre) @ self.basis

    def left_out_scores(self, samples: LeftOutSamples) -> Tensor:
        """Return the indicators predicted for the tested samples by fits without their groups, shape (k, classes)."""
        return self.scores_without_groups(self.prepare(samples), samples, self.penalty)

    def scores_without_groups(self, projected: Tensor, samples: LeftOutSamples, penalty: float) -> Tensor:
        """Return the indicators predicted for the tested samples by fits without their groups, shape (k, classes).

        Args:
            projected: Result of `prepare`.
            samples: The samples.
            penalty: Penalty on the squared weights.
        """
        tested = samples.tested
        truth = F.one_hot(samples.labels[tested], len(self.share)).double()
        fitted = projected[tested] @ self._shrunk(penalty) + self.share
        leverage = (projected[tested] ** 2 / (self.values + penalty)).sum(dim=1) + self.constant
        scores = truth - (truth - fitted) / (1 - leverage).clamp(min=1e-9)[:, None]
        rank = torch.full((len(samples.labels),), -1).index_copy(0, tested, torch.arange(len(tested)))
        for members in samples.groups:
            rows = rank[members]
            if bool((rows >= 0).any()):
                scores[rows[rows >= 0]] = self._without(projected[members], samples.labels[members], penalty)[rows >= 0]
        return scores

    def _without(self, members: Tensor, labels: Tensor, penalty: float) -> Tensor:
        """Return the indicators predicted for a group by a fit without it, shape (g, classes)."""
        truth = F.one_hot(labels, len(self.share)).double()
        residuals = truth - (members @ self._shrunk(penalty) + self.share)
        hat = (members / (self.values + penalty)) @ members.T + self.constant
        return truth - torch.linalg.solve(torch.eye(len(hat), dtype=hat.dtype) * (1 + 1e-12) - hat, residuals)

    def generalised_error(self, penalty: float) -> float:
        """Return the generalised cross-validation error, which needs no samples.

        Args:
            penalty: Penalty on the squared weights.
        """
        shrunk = self._shrunk(penalty)
        error = self.n * (self.share * (1 - self.share)).sum()
        error = error - 2 * (shrunk * self.rotated).sum() + (self.values[:, None] * shrunk**2).sum()
        freedom = 1 + (self.values / (self.values + penalty)).sum()
        return float(error / (1 - freedom / self.n).clamp(min=1e-6) ** 2)
