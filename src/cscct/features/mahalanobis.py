"""Mahalanobis distances to classes with a covariance each, after Tukey's transformation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from .linear import FittedPredictor

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")


def transformed(features: Tensor, power: Tensor, *, unit: bool = False) -> Tensor:
    """Return Tukey's transformation of features: powers of absolute values with the sign, optionally normalised."""
    powers = features.sign() * features.abs() ** power
    return torch.nn.functional.normalize(powers, dim=1) if unit else powers


@dataclass(frozen=True)
class MahalanobisDistances(FittedPredictor):
    """Scores -D², with D² = yᵀΣ⁻¹y and y = s⊙(x - μ): dividing Σ by its deviations s multiplies x - μ by them."""

    power: Tensor  # λ, ()
    means: Tensor  # μ, (classes, d): unit vectors of transformed features, as x
    deviations: Tensor  # s, (classes, d)
    identity: Tensor  # c of Σ⁻¹ = (I - Bᵀ diag(w) B) / c, (classes,)
    basis: Tensor  # B, (classes, r, d)
    weight: Tensor  # w, (classes, r)
    temperature: float = 0.1  # for classes without samples to calibrate on

    def scores(self, features: Tensor) -> Tensor:
        """Return the class scores, shape (k, classes)."""
        columns, unit = [], transformed(features, self.power, unit=True)
        for label, mean in enumerate(self.means):
            y = (unit - mean) * self.deviations[label]
            squares = (y**2).sum(dim=1) - (y @ self.basis[label].T) ** 2 @ self.weight[label]
            columns.append(-squares / self.identity[label])
        return torch.stack(columns, dim=1)
