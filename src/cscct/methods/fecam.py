"""FeCAM: Mahalanobis distances with a covariance of each class (Goswami et al., NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from ..features import PREDICTORS, Predictor, samples_of
from ..features.mahalanobis import MahalanobisDistances, transformed
from ..lazy import lazy_module
from .training_free import training_free

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..features import linear, statistics
else:
    torch, linear, statistics = map(lazy_module, ("torch", "cscct.features.linear", "cscct.features.statistics"))


@PREDICTORS.register("fecam")
@dataclass(frozen=True)
class FeCAM(Predictor):
    """Mahalanobis distance with the shrunk and normalised covariance of each class, after Tukey's transformation."""

    power: PositiveFloat = 0.5
    """Exponent λ of Tukey's transformation; 1: none."""
    diagonal: PositiveFloat = 1.0
    """Shrinkage γ₁: multiple of the mean variance that is added to the variances."""
    off_diagonal: NonNegativeFloat = 1.0
    """Shrinkage γ₂: multiple of the mean covariance that is added to the covariances."""
    passes: PositiveInt = 2
    """How often the covariance is shrunk: twice in the released code, once in the paper."""
    title, fitted, reads_samples = "FeCAM", MahalanobisDistances, True

    def fit(self, classes: Sequence[statistics.ClassStatistics], seed: int = 0) -> MahalanobisDistances:
        """Fit the distances, and the temperature of another fit to the samples that it leaves out."""
        samples = samples_of(classes)
        kept, held_out, labels = statistics.hold_out(samples)
        calibration = linear.calibrate(self._distances(kept).scores(held_out), labels)
        fitted = self._distances(samples)
        floats = {name: tensor.float() for name, tensor in fitted.tensors().items() if name != "temperature"}
        return replace(fitted, temperature=calibration.temperature or fitted.temperature, **floats)

    def _distances(self, samples: Sequence[Tensor]) -> MahalanobisDistances:
        power = torch.tensor(self.power, dtype=torch.float64)
        means = transformed(torch.stack([rows.mean(dim=0) for rows in samples]), power, unit=True)
        parts = zip(*(self._covariance(transformed(rows, power)) for rows in samples), strict=True)
        padded = (torch.nn.utils.rnn.pad_sequence(list(part), batch_first=True) for part in parts)
        deviations, identity, basis, weight = padded
        return MahalanobisDistances(power, means, deviations, identity[:, 0], basis, weight)

    def _covariance(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return s, c, B and w of Σ + γ₁V₁I + γ₂V₂(1 - I), with mean variance V₁ and mean covariance V₂."""
        d = rows.shape[1]
        negligible, rows = 1e-24 * (rows**2).mean(), (rows - rows.mean(dim=0)) / max(1, len(rows) - 1) ** 0.5
        variance = (rows**2).sum() / d  # Σ is the product of the rows with their transpose
        if not variance > negligible:  # one sample, or identical ones: the distance of unit vectors
            return rows.new_ones(d), rows.new_ones(1), rows.new_zeros(0, d), rows.new_zeros(0)
        covariance = ((rows.sum(dim=1) ** 2).sum() - d * variance) / max(1, d * (d - 1))
        added = variance * ((1 + self.diagonal) ** self.passes - 1)  # each pass multiplies V₁ by 1 + γ₁, V₂ by 1 + γ₂
        shared = covariance * ((1 + self.off_diagonal) ** self.passes - 1)
        identity = (added - shared).clamp(min=1e-6 * variance)
        return ((rows**2).sum(dim=0) + added).sqrt(), identity[None], *statistics.inverse_of_sum(rows, identity, shared)


FECAM = training_free("fecam", "fecam", "no training: Mahalanobis distance with a covariance of each class")
