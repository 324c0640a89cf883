"""RanPAC: ridge regression on random nonlinear features (McDonnell et al., NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from .. import features
from ..features import PREDICTORS, FittedPredictor, Predictor, samples_of
from ..lazy import lazy_module
from .training_free import training_free

if TYPE_CHECKING:
    import torch

    from .. import seeding
else:
    torch, seeding = lazy_module("torch"), lazy_module("cscct.seeding")


@dataclass(frozen=True)
class RandomFeatures(FittedPredictor):
    """Scores h·Wₒ of the hidden features h = max(0, f·W)."""

    projection: torch.Tensor  # W, (d, M)
    weight: torch.Tensor  # Wₒ, (M, classes)
    temperature: float

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the class scores, shape (k, classes)."""
        return (features @ self.projection).relu() @ self.weight


@PREDICTORS.register("ranpac")
@dataclass(frozen=True)
class RanPAC(Predictor):
    """Ridge regression onto class indicators, on a random projection of the features with a ReLU."""

    dimension: PositiveInt = 2000
    """Number M of random features."""
    title, fitted, reads_samples = "RanPAC", RandomFeatures, True

    def fit(self, classes: Sequence[features.ClassStatistics], seed: int = 0) -> RandomFeatures:
        """Fit Wₒ = (G + λI)⁻¹C with G = HᵀH and C = HᵀY, which are sums over the samples of all classes."""
        samples, generator = samples_of(classes), seeding.generator(seed, "ranpac")
        projection = torch.randn(samples[0].shape[1], self.dimension, generator=generator)
        hidden = [(rows @ projection.double()).relu() for rows in samples]
        statistics = [features.ClassStatistics.of(rows, keep_samples=True) for rows in hidden]
        linear = features.ridge(statistics, intercept=False, factors=[10.0**k for k in range(-8, 9)])
        return RandomFeatures(projection, linear.weight.T.contiguous(), linear.temperature)


RANPAC = training_free("ranpac", "ranpac", "no training: ridge regression on random nonlinear features")
