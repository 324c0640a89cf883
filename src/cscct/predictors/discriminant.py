"""Linear discriminant analysis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .linear import Fit, LinearPredictor, calibrated
from .statistics import ClassStatistics, counts_and_means, left_out_images, spectrum

SHRINKAGES = [1 / (1 + 2.0**-k) for k in range(-7, 9)]  # from 1/129 to 256/257


def lda(classes: Sequence[ClassStatistics], shrinkage: float | None = None) -> LinearPredictor:
    """Linear discriminant analysis: Gaussians with one covariance and equal priors.

    shrinkage: of the covariance, towards a multiple of the identity. By default the one under which images that are
    left out one at a time have the greatest likelihood of their class, at the best temperature; where no images are
    kept, that of OAS (Chen et al., 2010).
    """
    model = Gaussians(classes)
    if shrinkage is not None:
        fit = model.measured(shrinkage)
    elif len(model.labels):
        fit, shrinkage = min(((model.measured(one), one) for one in SHRINKAGES), key=lambda found: found[0].loss)
    else:
        fit, shrinkage = Fit(0.0, None), model.oas()
    weight, bias = model.discriminants(shrinkage)
    return LinearPredictor(weight.float(), bias.float(), fit.temperature or model.default_temperature(shrinkage))


class Gaussians:
    """The classes as Gaussians with one covariance: its spectrum, and the images that can be left out."""

    def __init__(self, classes: Sequence[ClassStatistics]):
        self.counts, means = counts_and_means(classes)
        self.centre = means.mean(dim=0)
        self.means = means - self.centre
        self.freedom = max(1.0, float(self.counts.sum()) - len(classes))
        values, basis = spectrum([one.centred for one in classes])
        if values.sum() <= 1e-24 * (means**2).sum():  # identical images, up to rounding
            values, basis = values[:0], basis[:, :0]
        self.values, self.basis = values / self.freedom, basis
        self.scale = float(self.values.sum()) / len(self.centre) or float((self.means**2).mean()) or 1.0
        images, self.labels = left_out_images(classes)
        self.images = images - self.centre
        self.projected_means, self.projected_images = self.means @ basis, self.images @ basis

    def _inverse(self, shrinkage: float) -> tuple[float, Tensor]:
        """The inverse covariance as a multiple of the identity, and what is added to it in the basis."""
        everywhere = 1 / (max(shrinkage, 1e-12) * self.scale)
        return everywhere, 1 / ((1 - shrinkage) * self.values + shrinkage * self.scale) - everywhere

    def discriminants(self, shrinkage: float) -> tuple[Tensor, Tensor]:
        """Weight (classes, d) and bias (classes,)."""
        everywhere, added = self._inverse(shrinkage)
        weight = everywhere * self.means + (self.projected_means * added) @ self.basis.T
        return weight, -weight @ self.centre - 0.5 * (weight * self.means).sum(dim=1)

    def left_out(self, shrinkage: float) -> Tensor:
        """Log-densities up to a constant, (images, classes), of each image without it: it changes the mean of its own
        class, and the covariance by a matrix of rank one. The multiple of the identity stays."""
        everywhere, added = self._inverse(shrinkage)
        weighted = (self.projected_means * added).T
        means = everywhere * (self.means @ self.means.T) + self.projected_means @ weighted
        images = everywhere * (self.images**2).sum(dim=1) + self.projected_images**2 @ added
        mixed = everywhere * (self.images @ self.means.T) + self.projected_images @ weighted
        # Products of x - (mean of its class), of x - (mean of another one), and of these two, in the inverse covariance
        own = (torch.arange(len(self.labels)), self.labels)
        size = images - 2 * mixed[own] + means.diagonal()[self.labels]
        squares = images[:, None] - 2 * mixed + means.diagonal()
        along = (images - mixed[own])[:, None] - mixed + means[self.labels]
        growth = self.counts[self.labels] / (self.counts[self.labels] - 1)
        squares[own], along[own] = growth**2 * size, growth * size
        removed = (1 - shrinkage) / self.freedom * growth
        return -0.5 * (squares + along**2 * (removed / (1 - removed * size).clamp(min=1e-9))[:, None])

    def measured(self, shrinkage: float) -> Fit:
        """How likely images are that are left out, at the best temperature."""
        return calibrated(self.left_out(shrinkage), self.labels)

    def oas(self) -> float:
        """The oracle approximating shrinkage, from the moments alone."""
        d, n = len(self.centre), self.freedom
        total, squares = float(self.values.sum()), float((self.values**2).sum())
        below = (n + 1 - 2 / d) * (squares - total**2 / d)
        return min(1.0, ((1 - 2 / d) * squares + total**2) / below) if below > 0 else 1.0

    def default_temperature(self, shrinkage: float) -> float:
        """Where there is nothing to measure on: 1, as for Gaussians whose covariance is known; without a covariance,
        such that the odds of a class against another one, at its mean, are about e⁵."""
        weight, bias = self.discriminants(shrinkage)
        at_means = (self.means + self.centre) @ weight.T + bias
        gap = float((at_means.diagonal()[:, None] - at_means).sum()) / max(1, len(at_means) * (len(at_means) - 1))
        return gap / 5 if not len(self.values) and gap > 0 else 1.0
