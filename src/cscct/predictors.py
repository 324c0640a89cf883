"""Classifiers on fixed features that need no training: nearest class mean, linear discriminant analysis, ridge
regression. They depend on the data only through exact sums, so classes may come one by one, in any order, and be
taken away again.

What they have to choose (shrinkage, penalty, temperature of the probabilities) is measured by leaving out one image
at a time, in closed form; see `lda` and `ridge`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .lazy import lazy_module

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

SHRINKAGES = [1 / (1 + 2.0**-k) for k in range(-7, 9)]  # from 1/129 to 256/257
PENALTIES = [2.0**k for k in range(-12, 13)]  # times the mean eigenvalue
LEFT_OUT = 1000  # images that are left out one by one: the average over more is no better


@dataclass(frozen=True)
class ClassStatistics:
    """What is kept of the features of a class: enough for every predictor here, exactly.

    rows: the features themselves as long as there are at most d of them; else a triangular matrix R with
    R'R = the sum of outer products of the features less their mean.
    """

    count: int
    total: Tensor  # (d,), float64: the sum of the features
    directions: Tensor  # (d,), float64: the sum of the unit features
    rows: Tensor  # (min(count, d), d), float32

    @staticmethod
    def of(features: Tensor) -> ClassStatistics:
        """features: (n, d), of one class."""
        nothing = torch.zeros(features.shape[1], dtype=torch.float64)
        return ClassStatistics(0, nothing, nothing, torch.zeros(0, features.shape[1])).extended(features)

    def extended(self, features: Tensor) -> ClassStatistics:
        """With more images of the class."""
        features = features.detach().float().cpu()
        wide = features.double()
        count, total = self.count + len(features), self.total + wide.sum(dim=0)
        directions = self.directions + F.normalize(wide, dim=1).sum(dim=0)
        if count <= features.shape[1]:
            return ClassStatistics(count, total, directions, torch.cat([self.rows, features]))
        mean = total / count
        shift = (self.count**0.5 * (self.mean - mean))[None] if self.count else wide[:0]
        scatter = torch.cat([self.centred, shift, wide - mean])
        return ClassStatistics(count, total, directions, torch.linalg.qr(scatter, mode="r").R.float())

    def tensors(self) -> dict[str, Tensor]:
        """All of it as tensors, for files."""
        fields = {"total": self.total, "directions": self.directions, "rows": self.rows}
        return {"count": torch.tensor(self.count), **fields}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> ClassStatistics:
        """The inverse of `tensors`."""
        total, directions, rows = (tensors[name] for name in ("total", "directions", "rows"))
        return ClassStatistics(int(tensors["count"]), total, directions, rows)

    @property
    def samples(self) -> Tensor | None:
        """The features one by one, as long as they are kept."""
        return self.rows if len(self.rows) == self.count else None

    @property
    def mean(self) -> Tensor:
        """(d,), float64."""
        return self.total / max(1, self.count)

    @property
    def centred(self) -> Tensor:
        """Rows (r, d) in float64 whose sum of outer products is the scatter of the features around their mean."""
        return self.rows.double() - self.mean if self.samples is not None else self.rows.double()


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


def ncm(classes: Sequence[ClassStatistics]) -> LinearPredictor:
    """Nearest class mean, by cosine: the mean of the unit features of a class, normalised."""
    totals = torch.stack([one.directions for one in classes])
    means = F.normalize(totals, dim=1)
    images, labels = _left_out(classes)
    images = F.normalize(images, dim=1)
    scores = images @ means.T
    own = (images * F.normalize(totals[labels] - images, dim=1)).sum(dim=1)  # without the image itself
    scores[torch.arange(len(labels)), labels] = own
    temperature = _calibrated(scores, labels).temperature or 0.05
    return LinearPredictor(means.float(), torch.zeros(len(classes)), temperature, unit=True)


def lda(classes: Sequence[ClassStatistics], shrinkage: float | None = None) -> LinearPredictor:
    """Linear discriminant analysis: Gaussians with one covariance and equal priors.

    shrinkage: of the covariance, towards a multiple of the identity. By default the one under which images that are
    left out one at a time have the greatest likelihood of their class, at the best temperature; where no images are
    kept, that of OAS (Chen et al., 2010).
    """
    model = _Gaussians(classes)
    if shrinkage is not None:
        fit = model.measured(shrinkage)
    elif len(model.labels):
        fit, shrinkage = min(((model.measured(one), one) for one in SHRINKAGES), key=lambda found: found[0].loss)
    else:
        fit, shrinkage = _Fit(0.0, None), model.oas()
    weight, bias = model.discriminants(shrinkage)
    return LinearPredictor(weight.float(), bias.float(), fit.temperature or model.default_temperature(shrinkage))


def ridge(classes: Sequence[ClassStatistics], penalty: float | None = None) -> LinearPredictor:
    """Ridge regression onto the classes' indicators, with an intercept that is not penalised.

    penalty: by default the one with the least squared error on images that are left out one at a time; where no images
    are kept, that of generalised cross-validation.
    """
    counts, means = _counts_and_means(classes)
    n = float(counts.sum())
    centre, share = (counts @ means) / n, counts / n
    products = (means - centre).T * counts  # of centred features and indicators, (d, classes)
    values, basis = _spectrum([one.centred for one in classes] + [counts.sqrt()[:, None] * (means - centre)])
    rotated = basis.T @ products
    images, labels = _left_out(classes)
    projected, truth = (images - centre) @ basis, F.one_hot(labels, len(classes)).double()

    def left_out(penalty: float) -> Tensor:
        """Indicators predicted for each image without it."""
        fitted = projected @ (rotated / (values + penalty)[:, None]) + share
        leverage = (projected**2 / (values + penalty)).sum(dim=1) + 1 / n
        return truth - (truth - fitted) / (1 - leverage).clamp(min=1e-9)[:, None]

    def generalised(penalty: float) -> float:
        shrunk = rotated / (values + penalty)[:, None]
        error = n * (share * (1 - share)).sum() - 2 * (shrunk * rotated).sum() + (values[:, None] * shrunk**2).sum()
        freedom = 1 + (values / (values + penalty)).sum()
        return float(error / (1 - freedom / n).clamp(min=1e-6) ** 2)

    if penalty is None:
        scale = float(values.mean()) if len(values) else 1.0
        kept = any(one.samples is not None for one in classes)
        error = (lambda one: float(((truth - left_out(one)) ** 2).sum())) if len(labels) else generalised
        penalty = scale if kept and not len(labels) else min((scale * one for one in PENALTIES), key=error)
    weight = (basis @ (rotated / (values + penalty)[:, None])).T
    temperature = _calibrated(left_out(penalty), labels).temperature or 0.06
    return LinearPredictor(weight.float(), (share - weight @ centre).float(), temperature)


class _Gaussians:
    """The classes as Gaussians with one covariance: its spectrum, and the images that can be left out."""

    def __init__(self, classes: Sequence[ClassStatistics]):
        self.counts, means = _counts_and_means(classes)
        self.centre = means.mean(dim=0)
        self.means = means - self.centre
        self.freedom = max(1.0, float(self.counts.sum()) - len(classes))
        values, basis = _spectrum([one.centred for one in classes])
        if values.sum() <= 1e-24 * (means**2).sum():  # identical images, up to rounding
            values, basis = values[:0], basis[:, :0]
        self.values, self.basis = values / self.freedom, basis
        self.scale = float(self.values.sum()) / len(self.centre) or float((self.means**2).mean()) or 1.0
        images, self.labels = _left_out(classes)
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

    def measured(self, shrinkage: float) -> _Fit:
        return _calibrated(self.left_out(shrinkage), self.labels)

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


class _Fit(NamedTuple):
    loss: float
    temperature: float | None  # None: nothing to measure on


def _calibrated(scores: Tensor, labels: Tensor) -> _Fit:
    """The temperature with the least mean cross-entropy. As in Platt scaling there is one mistake more than was seen:
    a share 1 / (n + 1) of each image counts for the best of the other classes."""
    from scipy.optimize import brentq

    n, classes = scores.shape
    scores = (scores - scores.mean(dim=1, keepdim=True)).float()
    if n == 0 or classes == 1:
        return _Fit(0.0, None)
    own = scores.gather(1, labels[:, None])
    other = scores.scatter(1, labels[:, None], -torch.inf).amax(dim=1, keepdim=True)
    target = ((n * own + other) / (n + 1))[:, 0]
    spread = float(scores.amax(dim=1).mean())
    if not spread > 0 or not math.isfinite(spread):
        return _Fit(math.log(classes), None)

    def slope(exponent: float) -> float:
        sharpness = math.exp(exponent) / spread
        return float(((sharpness * scores).softmax(dim=1) * scores).sum(dim=1).sub(target).mean()) / spread

    low, high = -7.0, 7.0
    exponent = low if slope(low) >= 0 else high if slope(high) <= 0 else float(brentq(slope, low, high, xtol=0.01))
    sharpness = math.exp(exponent) / spread
    return _Fit(float(((sharpness * scores).logsumexp(dim=1) - sharpness * target).mean()), 1 / sharpness)


class _Spectrum(NamedTuple):
    values: Tensor  # (r,): eigenvalues that are not zero
    basis: Tensor  # (d, r)


def _spectrum(blocks: Sequence[Tensor]) -> _Spectrum:
    """Of the sum of outer products of the rows of all blocks, by the smaller of the two Gram matrices."""
    if sum(map(len, blocks)) < blocks[0].shape[1]:
        rows = torch.cat(list(blocks))
        values, left = torch.linalg.eigh(rows @ rows.T)
        kept = values > 1e-12 * values.amax()
        values = values[kept]
        return _Spectrum(values, rows.T @ (left[:, kept] / values.sqrt()))
    gram = torch.zeros(blocks[0].shape[1], blocks[0].shape[1], dtype=torch.float64)
    for block in blocks:
        gram.addmm_(block.T, block)
    values, basis = torch.linalg.eigh(gram)
    kept = values > 1e-12 * values.amax()
    return _Spectrum(values[kept], basis[:, kept])


def _counts_and_means(classes: Sequence[ClassStatistics]) -> tuple[Tensor, Tensor]:
    counts = torch.tensor([one.count for one in classes], dtype=torch.float64)
    return counts, torch.stack([one.mean for one in classes])


def _left_out(classes: Sequence[ClassStatistics]) -> tuple[Tensor, Tensor]:
    """Features and labels of images to leave out one by one: of classes that have others, evenly spaced where there are
    many."""
    most, found, labels = max(2, LEFT_OUT // len(classes)), [classes[0].rows[:0].double()], []
    for label, one in enumerate(classes):
        if one.samples is not None and one.count > 1:
            chosen = torch.linspace(0, one.count - 1, min(one.count, most)).round().long()
            found.append(one.samples[chosen].double())
            labels += [label] * len(chosen)
    return torch.cat(found), torch.tensor(labels, dtype=torch.int64)


PREDICTORS = {"ncm": ncm, "lda": lda, "ridge": ridge}
