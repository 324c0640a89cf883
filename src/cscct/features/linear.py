"""Fitted predictors, those with linear scores, and the calibration of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from ..lazy import lazy_module

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


class FittedPredictor:
    """Base class of fitted predictors on features: frozen dataclasses of tensors and a temperature.

    Derived classes implement `scores` with operations of torch, which `cscct export` traces. All their fields besides
    `temperature` are tensors with finite values, so that they can be stored.

    Attributes:
        temperature: Divisor that turns the scores into logits.
    """

    temperature: float

    def scores(self, features: Tensor) -> Tensor:
        """Return the class scores.

        Args:
            features: Features, shape (k, d).

        Returns:
            Scores, shape (k, classes).
        """
        raise NotImplementedError

    def ranking(self, features: Tensor) -> Tensor:
        """Return a matrix whose largest value in each row belongs to the predicted class, shape (k, classes).

        Args:
            features: Features, shape (k, d).
        """
        return self.scores(features)

    def predict(self, features: Tensor) -> Tensor:
        """Return the index of the predicted class of each sample.

        Args:
            features: Features, shape (k, d).

        Returns:
            Class indices, shape (k,), int64.
        """
        return self.ranking(features).argmax(dim=1)

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Return the log-probabilities of the classes.

        They are computed in float64, so that those of a sample do not depend on the other samples of the batch.

        Args:
            features: Features, shape (k, d).

        Returns:
            Log-probabilities, shape (k, classes), float64.
        """
        floats = {name: part for name, part in self.tensors().items() if part.is_floating_point()}
        doubles = {name: part.double() for name, part in floats.items() if name != "temperature"}
        exact: FittedPredictor = replace(cast(Any, self), **doubles)
        return (exact.scores(features.double()) / self.temperature).log_softmax(dim=1)

    def probabilities(self, features: Tensor) -> Tensor:
        """Return the class probabilities.

        Args:
            features: Features, shape (k, d).

        Returns:
            Probabilities, shape (k, classes). Each row sums to 1.
        """
        return (self.scores(features) / self.temperature).softmax(dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields as tensors for a file."""
        parts = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        return {**parts, "temperature": torch.tensor(self.temperature, dtype=torch.float64)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the predictor that `tensors` describes.

        Args:
            tensors: Result of `tensors`.

        Raises:
            KeyError: If a tensor is missing.
        """
        parts: dict[str, Any] = {field.name: tensors[field.name] for field in fields(cast(Any, cls))}
        return cls(**{**parts, "temperature": float(tensors["temperature"])})

    def fits(self, classes: int, width: int) -> bool:
        """Return whether a predictor from a file can predict.

        Args:
            classes: Number of classes.
            width: Number d of features.
        """
        if not self.temperature > 0 or not all(bool(part.isfinite().all()) for part in self.tensors().values()):
            return False
        try:
            return self.scores(torch.zeros(2, width)).shape == (2, classes)
        except (RuntimeError, LookupError, ValueError):
            return False


@dataclass(frozen=True)
class LinearPredictor(FittedPredictor):
    """Class scores that are a linear function of the features.

    Attributes:
        weight: Weights, shape (classes, d), float32.
        bias: Biases, shape (classes,), float32.
        temperature: Divisor that turns the scores into logits.
        unit: Whether features are normalised to unit length first. The rows of `weight` are then unit vectors.
    """

    weight: Tensor
    bias: Tensor
    temperature: float
    unit: bool = False

    def scores(self, features: Tensor) -> Tensor:
        """Return the class scores.

        Args:
            features: Features, shape (k, d).

        Returns:
            Scores, shape (k, classes).
        """
        features = F.normalize(features, dim=1) if self.unit else features
        return features @ self.weight.T + self.bias

    def ranking(self, features: Tensor) -> Tensor:
        """Return a matrix whose largest value in each row belongs to the predicted class.

        Args:
            features: Features, shape (k, d).

        Returns:
            Scores, or negative distances to unit vectors, shape (k, classes).
        """
        if self.unit:  # by distance: near-ties are rounded differently in the scores, and recorded results depend on it
            return -torch.cdist(F.normalize(features, dim=1), self.weight)
        return self.scores(features)

    def tensors(self) -> dict[str, Tensor]:
        """Return weight, bias and temperature as tensors for a file. `unit` is not included."""
        temperature = torch.tensor(self.temperature, dtype=torch.float64)
        return {"weight": self.weight, "bias": self.bias, "temperature": temperature}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the predictor that `tensors` describes, with `unit=False`.

        Args:
            tensors: Result of `tensors`.

        Raises:
            KeyError: If a tensor is missing.
        """
        return cls(tensors["weight"], tensors["bias"], float(tensors["temperature"]))

    def fits(self, classes: int, width: int) -> bool:
        """Return whether a predictor from a file can predict.

        Args:
            classes: Number of classes.
            width: Number d of features.
        """
        return self.bias.shape == (classes,) and super().fits(classes, width)


class Calibration(NamedTuple):
    """Result of `calibrate`."""

    loss: float  # mean cross-entropy at the temperature
    temperature: float | None  # None: the scores do not determine it


def calibrate(scores: Tensor, labels: Tensor) -> Calibration:
    """Find the temperature that minimises the mean cross-entropy.

    As in Platt scaling, one more error than observed is assumed: a fraction 1 / (n + 1) of each target belongs to the
    highest-scoring wrong class. Otherwise separable scores would have no optimal temperature.

    Args:
        scores: Scores of held-out samples, shape (n, classes).
        labels: Class indices, shape (n,), int64.

    Returns:
        Cross-entropy and temperature.
    """
    from scipy.optimize import brentq  # imported late: prediction does not need it

    n, classes = scores.shape
    scores = (scores - scores.mean(dim=1, keepdim=True)).float()
    if n == 0 or classes == 1:
        return Calibration(0.0, None)
    true_score = scores.gather(1, labels[:, None])
    best_wrong_score = scores.scatter(1, labels[:, None], -torch.inf).amax(dim=1, keepdim=True)
    target = ((n * true_score + best_wrong_score) / (n + 1))[:, 0]
    spread = float(scores.amax(dim=1).mean())
    if not spread > 0 or not math.isfinite(spread):
        return Calibration(math.log(classes), None)

    def slope(exponent: float) -> float:
        sharpness = math.exp(exponent) / spread
        return float(((sharpness * scores).softmax(dim=1) * scores).sum(dim=1).sub(target).mean()) / spread

    low, high = -7.0, 7.0
    exponent = low if slope(low) >= 0 else high if slope(high) <= 0 else float(brentq(slope, low, high, xtol=0.01))
    sharpness = math.exp(exponent) / spread
    return Calibration(float(((sharpness * scores).logsumexp(dim=1) - sharpness * target).mean()), 1 / sharpness)
