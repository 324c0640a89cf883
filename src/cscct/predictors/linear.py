"""Scores that are linear in the features, and the temperature that makes them probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class LinearPredictor:
    """Scores of classes as a linear function of the features, or of the unit features."""

    weight: Tensor  # (classes, d), float32
    bias: Tensor  # (classes,), float32
    temperature: float  # the scores divided by it are logits
    unit: bool = False  # whether features are normalised first

    def scores(self, features: Tensor) -> Tensor:
        """(k, classes). features: (k, d)."""
        features = F.normalize(features, dim=1) if self.unit else features
        return features @ self.weight.T + self.bias

    def tensors(self) -> dict[str, Tensor]:
        """Weight, bias and temperature, for files; the features' norm is not among them."""
        temperature = torch.tensor(self.temperature, dtype=torch.float64)
        return {"weight": self.weight, "bias": self.bias, "temperature": temperature}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> LinearPredictor:
        """The inverse of `tensors`, for predictors on features as they are."""
        return LinearPredictor(tensors["weight"], tensors["bias"], float(tensors["temperature"]))

    def probabilities(self, features: Tensor) -> Tensor:
        """(k, classes); rows sum to 1."""
        return (self.scores(features) / self.temperature).softmax(dim=1)


class Fit(NamedTuple):
    """What `calibrated` found."""

    loss: float
    temperature: float | None  # None: nothing to measure on


def calibrated(scores: Tensor, labels: Tensor) -> Fit:
    """The temperature with the least mean cross-entropy. As in Platt scaling there is one mistake more than was seen:
    a share 1 / (n + 1) of each image counts for the best of the other classes."""
    from scipy.optimize import brentq  # not for predicting, which begins sooner without it

    n, classes = scores.shape
    scores = (scores - scores.mean(dim=1, keepdim=True)).float()
    if n == 0 or classes == 1:
        return Fit(0.0, None)
    own = scores.gather(1, labels[:, None])
    other = scores.scatter(1, labels[:, None], -torch.inf).amax(dim=1, keepdim=True)
    target = ((n * own + other) / (n + 1))[:, 0]
    spread = float(scores.amax(dim=1).mean())
    if not spread > 0 or not math.isfinite(spread):
        return Fit(math.log(classes), None)

    def slope(exponent: float) -> float:
        sharpness = math.exp(exponent) / spread
        return float(((sharpness * scores).softmax(dim=1) * scores).sum(dim=1).sub(target).mean()) / spread

    low, high = -7.0, 7.0
    exponent = low if slope(low) >= 0 else high if slope(high) <= 0 else float(brentq(slope, low, high, xtol=0.01))
    sharpness = math.exp(exponent) / spread
    return Fit(float(((sharpness * scores).logsumexp(dim=1) - sharpness * target).mean()), 1 / sharpness)
