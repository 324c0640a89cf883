"""Classifiers on fixed features that need no training: nearest class mean, linear discriminant analysis, ridge
regression. They depend on the data only through exact sums, so classes may come one by one, in any order, and be
taken away again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .lazy import lazy_module

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


@dataclass(frozen=True)
class ClassStatistics:
    """What is kept of the features of a class: enough for every predictor here, exactly.

    rows: (r, d) with rows' rows = the sum of outer products of the features. The features themselves as long as there
    are at most d of them, else the triangular factor of their QR decomposition.
    """

    count: int
    total: Tensor  # (d,), float64: the sum of the features
    directions: Tensor  # (d,), float64: the sum of the unit features
    rows: Tensor  # (min(count, d), d), float32

    @staticmethod
    def of(features: Tensor) -> ClassStatistics:
        """features: (n, d), of one class."""
        wide = features.double()
        empty = ClassStatistics(0, torch.zeros_like(wide[0]), torch.zeros_like(wide[0]), features[:0].float())
        return empty.extended(features)

    def extended(self, features: Tensor) -> ClassStatistics:
        """With more images of the class."""
        wide = features.double()
        return ClassStatistics(
            self.count + len(features),
            self.total + wide.sum(dim=0),
            self.directions + F.normalize(wide, dim=1).sum(dim=0),
            _compressed(torch.cat([self.rows, features.float()])),
        )

    @property
    def samples(self) -> Tensor | None:
        """The features one by one, as long as they are kept."""
        return self.rows if len(self.rows) == self.count else None


def _compressed(rows: Tensor) -> Tensor:
    return rows if len(rows) <= rows.shape[1] else torch.linalg.qr(rows.double(), mode="r").R.float()


@dataclass(frozen=True)
class LinearPredictor:
    """Scores of classes as a linear function of the features, or of the unit features."""

    weight: Tensor  # (classes, d), float32
    bias: Tensor  # (classes,)
    temperature: float  # the scores divided by it are logits
    unit: bool = False  # whether features are normalised first

    def scores(self, features: Tensor) -> Tensor:
        """(k, classes). features: (k, d)."""
        features = F.normalize(features, dim=1) if self.unit else features
        return features @ self.weight.T + self.bias

    def probabilities(self, features: Tensor) -> Tensor:
        return (self.scores(features) / self.temperature).softmax(dim=1)


def ncm(classes: Sequence[ClassStatistics]) -> LinearPredictor:
    """Nearest class mean, by cosine: the mean of the unit features of a class, normalised."""
    means = torch.stack([F.normalize(one.directions, dim=0) for one in classes])
    return LinearPredictor(means.float(), torch.zeros(len(classes)), 0.05, unit=True)


def lda(classes: Sequence[ClassStatistics], shrinkage: float = 0.5) -> LinearPredictor:
    """Linear discriminant analysis: Gaussians with one covariance and equal priors. shrinkage: towards a multiple of
    the identity."""
    counts, means, gram = _moments(classes)
    within = gram - (means.T * counts) @ means
    within /= max(1.0, float(counts.sum()) - len(classes))
    d = len(within)
    target = within.diagonal().mean().clamp(min=1e-12)
    precision = torch.linalg.inv((1 - shrinkage) * within + shrinkage * target * torch.eye(d, dtype=torch.float64))
    weight = means @ precision
    return LinearPredictor(weight.float(), (-0.5 * (weight * means).sum(dim=1)).float(), 1.0)


def ridge(classes: Sequence[ClassStatistics]) -> LinearPredictor:
    """Ridge regression onto the classes' indicators. The penalty is chosen by generalised
    cross-validation."""
    counts, means, gram = _moments(classes)
    n = float(counts.sum())
    centre, share = (counts @ means) / n, counts / n
    products = means.T * counts - torch.outer(centre, counts)  # of centred features and indicators, (d, classes)
    values, basis = torch.linalg.eigh(gram - n * torch.outer(centre, centre))
    values = values.clamp(min=0)
    rotated = basis.T @ products
    spread = n * (share * (1 - share)).sum()

    def error(penalty: float) -> float:
        shrunk = rotated / (values + penalty)[:, None]
        rest = spread - 2 * (shrunk * rotated).sum() + (values[:, None] * shrunk**2).sum()
        freedom = 1 + (values / (values + penalty)).sum()
        return float(rest / (1 - freedom / n).clamp(min=1e-6) ** 2)

    scale = max(float(values.mean()), 1e-12)
    penalty = min((scale * 2.0**k for k in range(-12, 13)), key=error)
    weight = (basis @ (rotated / (values + penalty)[:, None])).T
    return LinearPredictor(weight.float(), (share - weight @ centre).float(), 0.1)


def _moments(classes: Sequence[ClassStatistics]) -> tuple[Tensor, Tensor, Tensor]:
    """Counts (classes,), means (classes, d) and the sum of outer products (d, d), in 64 bits."""
    counts = torch.tensor([one.count for one in classes], dtype=torch.float64)
    means = torch.stack([one.total / one.count for one in classes])
    rows = torch.cat([one.rows for one in classes]).double()
    return counts, means, rows.T @ rows


PREDICTORS = {"ncm": ncm, "lda": lda, "ridge": ridge}
