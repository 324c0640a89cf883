"""Linear discriminant analysis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from .left_out import Groups, LeftOutSamples, select_samples
from .linear import Calibration, LinearPredictor, calibrate
from .statistics import ClassStatistics, Spectrum, counts_and_means, eigendecomposition, gram_matrix, gram_spectrum

SHRINKAGES = [1 / (1 + 2.0**-k) for k in range(-7, 9)]  # candidates, from 1/129 to 256/257
FIRST_CANDIDATE = 6  # where the search starts: 1/3
WIDE = 1024  # dimensions from which the spectrum, which takes most of the time, is computed with 32 bits


def lda(classes: Sequence[ClassStatistics], shrinkage: float | None = None) -> LinearPredictor:
    """Fit linear discriminant analysis: Gaussian classes with a shared covariance and equal priors.

    Args:
        classes: Statistics of each class, in the order of the labels.
        shrinkage: Shrinkage of the covariance towards a multiple of the identity, in [0, 1]. By default the candidate
            with the smallest leave-one-out cross-entropy at its best temperature, or, if no samples are stored, the
            OAS estimate (Chen et al., 2010).

    Returns:
        Predictor with float32 weights, shape (classes, d).
    """
    return fit_lda(classes, shrinkage=shrinkage).predictor


def fit_lda(
    classes: Sequence[ClassStatistics], groups: Groups | None = None, shrinkage: float | None = None
) -> GaussianClasses:
    """Fit linear discriminant analysis, with shrinkage and temperature selected without near-duplicates.

    Args:
        classes: Statistics of each class, in the order of the labels.
        groups: Groups of near-duplicates; None if there are none.
        shrinkage: Shrinkage of the covariance; see `lda`.
    """
    model = GaussianClasses(classes, groups)
    if shrinkage is not None:
        calibration = model.calibration(shrinkage)
    elif len(model.selected.tested):
        calibration, shrinkage = _search(model)
    else:
        calibration, shrinkage = Calibration(0.0, None), model.oas()
    model.shrinkage = shrinkage
    model.temperature = calibration.temperature or model.default_temperature(shrinkage)
    return model


def _search(model: GaussianClasses) -> tuple[Calibration, float]:
    """Return the best candidate. The loss has one minimum, so the search follows it downwards."""
    calibration = cache(lambda index: model.calibration(SHRINKAGES[index]))
    best = FIRST_CANDIDATE
    while True:
        neighbours = [index for index in (best - 1, best, best + 1) if 0 <= index < len(SHRINKAGES)]
        better = min(neighbours, key=lambda index: calibration(index).loss)
        if better == best:
            return calibration(best), SHRINKAGES[best]
        best = better


class _Coordinates(NamedTuple):
    """Vectors in the basis of the covariance, and what lies outside of it; None if the basis is complete."""

    inside: Tensor  # (n, r)
    outside: Tensor | None  # (n, d)


class GaussianClasses:
    """Gaussian classes with a shared covariance, given by its spectrum.

    Attributes:
        means: Class means relative to `centre`, shape (classes, d).
        centre: Mean of the class means, shape (d,).
        selected: Samples on which shrinkage and temperature are selected.
        scale: Factor of the identity that the covariance is shrunk towards.
        shrinkage: Shrinkage of the covariance, in [0, 1].
        temperature: Divisor that turns the scores into logits.
    """

    def __init__(self, classes: Sequence[ClassStatistics], groups: Groups | None = None):
        self.counts, means = counts_and_means(classes)
        self.centre = means.mean(dim=0)
        self.means = means - self.centre
        self.freedom = max(1.0, float(self.counts.sum()) - len(classes))
        self.shrinkage, self.temperature = 1.0, 1.0
        blocks = [stats.centred for stats in classes]
        self.covariance: Tensor | None = None
        if len(self.centre) >= WIDE and 2 * sum(map(len, blocks)) >= len(self.centre):
            self.covariance = gram_matrix(blocks) / self.freedom
            values, basis = eigendecomposition(self.covariance.float())
            values = values.clamp(min=0)
        else:
            values, basis = gram_spectrum(blocks)
            values = values / self.freedom
        if values.sum() * self.freedom <= 1e-24 * (means**2).sum():  # identical samples, up to rounding
            values, basis, self.covariance = values[:0], basis[:, :0], None
        self.spectrum = Spectrum(values, basis)
        self.scale = float(values.double().sum()) / len(self.centre) or float((self.means**2).mean()) or 1.0
        self._means = self._coordinates(self.means)
        self.selected = select_samples(classes, groups)
        self._selected = self._coordinates(self.selected.rows - self.centre)

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor fitted to all samples."""
        weight, bias = self.discriminants(self.shrinkage)
        return LinearPredictor(weight.float(), bias.float(), self.temperature)

    def _coordinates(self, rows: Tensor) -> _Coordinates:
        basis = self.spectrum.basis
        rows = rows.to(basis.dtype)
        inside = rows @ basis
        complete = basis.shape[0] == basis.shape[1]
        return _Coordinates(inside, None if complete else rows - inside @ basis.T)

    def _whitened(self, coordinates: _Coordinates, shrinkage: float) -> Tensor:
        """Return vectors in coordinates in which the covariance is the identity."""
        identity = max(shrinkage, 1e-12) * self.scale
        inside = coordinates.inside / ((1 - shrinkage) * self.spectrum.values + identity).sqrt()
        return inside if coordinates.outside is None else torch.cat([inside, coordinates.outside / identity**0.5], 1)

    def discriminants(self, shrinkage: float) -> tuple[Tensor, Tensor]:
        """Return the weight, shape (classes, d), and the bias, shape (classes,), of the discriminant functions.

        Args:
            shrinkage: Shrinkage of the covariance, in [0, 1].
        """
        identity = max(shrinkage, 1e-12) * self.scale
        if self.covariance is not None:
            shrunk = (1 - shrinkage) * self.covariance
            shrunk.diagonal().add_(identity)
            weight = torch.cholesky_solve(self.means.T, torch.linalg.cholesky(shrunk)).T
        else:
            values, basis = self.spectrum
            addition = 1 / ((1 - shrinkage) * values + identity) - 1 / identity
            weight = self.means / identity + (self._means.inside * addition) @ basis.T
        return weight, -weight @ self.centre - 0.5 * (weight * self.means).sum(dim=1)

    def left_out_scores(self, samples: LeftOutSamples) -> Tensor:
        """Return the log-densities of the tested samples under fits without their groups, up to a constant, shape
        (k, classes).

        Args:
            samples: The samples.
        """
        return self._left_out(samples, self._coordinates(samples.rows - self.centre), self.shrinkage)

    def _left_out(self, samples: LeftOutSamples, coordinates: _Coordinates, shrinkage: float) -> Tensor:
        """Removing samples of a class changes its mean, and the covariance by a matrix of low rank. The multiple of the
        identity is kept."""
        rows, means = (self._whitened(vectors, shrinkage) for vectors in (coordinates, self._means))
        labels = samples.labels
        offsets = rows - means[labels]  # u: relative to the mean of the own class; v: to the mean of any class
        tested = samples.tested
        norms = (means**2).sum(dim=1)
        squares = (rows[tested] ** 2).sum(dim=1)[:, None] - 2 * rows[tested] @ means.T + norms  # v·v
        along = (offsets[tested] * rows[tested]).sum(dim=1)[:, None] - offsets[tested] @ means.T  # u·v
        size = (offsets[tested] ** 2).sum(dim=1)  # u·u
        counts = self.counts[labels[tested]].to(rows.dtype)
        growth = counts / (counts - 1)
        own = (torch.arange(len(tested)), labels[tested])
        squares[own], along[own] = growth**2 * size, growth * size
        weight = (1 - shrinkage) / self.freedom
        removed = weight * growth
        rank = torch.full((len(labels),), -1).index_copy(0, tested, torch.arange(len(tested)))
        densities = -0.5 * (squares + along**2 * (removed / (1 - removed * size).clamp(min=1e-9))[:, None])
        for members in samples.groups:
            positions = rank[members]
            if bool((positions >= 0).any()):
                label = int(labels[members[0]])
                distances = _without_group(offsets[members], means, label, float(self.counts[label]), weight)
                densities[positions[positions >= 0]] = -0.5 * distances[positions >= 0].to(densities.dtype)
        return densities

    def calibration(self, shrinkage: float) -> Calibration:
        """Return the leave-one-out cross-entropy and the temperature that minimises it.

        Args:
            shrinkage: Shrinkage of the covariance, in [0, 1].
        """
        scores = self._left_out(self.selected, self._selected, shrinkage)
        return calibrate(scores, self.selected.labels[self.selected.tested])

    def oas(self) -> float:
        """Return the oracle approximating shrinkage, which needs only the spectrum."""
        d, n = len(self.centre), self.freedom
        total, squares = float(self.spectrum.values.sum()), float((self.spectrum.values**2).sum())
        denominator = (n + 1 - 2 / d) * (squares - total**2 / d)
        return min(1.0, ((1 - 2 / d) * squares + total**2) / denominator) if denominator > 0 else 1.0

    def default_temperature(self, shrinkage: float) -> float:
        """Return the temperature for classes without samples to calibrate on.

        It is 1, as for Gaussians with known covariance. Without a covariance it is chosen such that at the mean of a
        class the odds of the class against another class are about e⁵.

        Args:
            shrinkage: Shrinkage of the covariance, in [0, 1].
        """
        classes = len(self.means)
        if len(self.spectrum.values) or classes < 2:
            return 1.0
        weight, bias = self.discriminants(shrinkage)
        means = self.means + self.centre
        own = classes * float((weight * means).sum() + bias.sum())
        pairs = float(means.sum(dim=0) @ weight.sum(dim=0)) + classes * float(bias.sum())  # all scores at all means
        gap = (own - pairs) / (classes * (classes - 1))
        return gap / 5 if gap > 0 else 1.0


def _without_group(offsets: Tensor, means: Tensor, label: int, count: float, weight: float) -> Tensor:
    """Return the squared Mahalanobis distances of the samples of a group to all classes after the group was removed.

    With D the offsets of the group from the mean of its class, n samples in the class and g in the group, the
    covariance I becomes I − w Dᵀ(I + 11ᵀ/(n − g))D, which is inverted by the Woodbury identity.

    Args:
        offsets: D in whitened coordinates, shape (g, r).
        means: Class means in these coordinates, shape (classes, r).
        label: Index of the class.
        count: n.
        weight: w.

    Returns:
        Distances, shape (g, classes), float64.
    """
    size = len(offsets)
    remaining = max(1.0, count - size)
    offsets = offsets.double()
    relative = means.double() - means[label].double()
    relative[label] = -offsets.sum(dim=0) / remaining  # the mean moves away from the removed samples
    gram = offsets @ offsets.T
    cross = offsets @ relative.T  # (g, classes)
    squares = gram.diagonal()[:, None] - 2 * cross + (relative**2).sum(dim=1)
    inner = (torch.eye(size, dtype=torch.float64) - 1 / (remaining + size)) / max(weight, 1e-300) - gram
    values, vectors = torch.linalg.eigh(inner)
    factor = vectors / values.clamp(min=1e-9 * float(values.abs().max())).sqrt()
    rotated, crossed = gram @ factor, cross.T @ factor  # (g, g), (classes, g)
    return squares + (rotated**2).sum(dim=1)[:, None] - 2 * rotated @ crossed.T + (crossed**2).sum(dim=1)
