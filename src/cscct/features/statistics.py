"""Statistics of the features of a class, and the quantities that predictors compute from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class ClassStatistics:
    """Sufficient statistics of the features of a class.

    Nearest mean, LDA and ridge regression can be computed from them exactly, and so can all other predictors if the
    samples are kept.

    Attributes:
        count: Number of samples.
        total: Sum of the features, shape (d,), float64.
        directions: Sum of the unit features, shape (d,), float64.
        rows: The features while count ≤ d or if samples are kept, shape (count, d), float32. Otherwise a triangular
            matrix R of shape (d, d) where RᵀR is the scatter matrix of the features around their mean.
    """

    count: int
    total: Tensor
    directions: Tensor
    rows: Tensor

    @staticmethod
    def of(features: Tensor, *, keep_samples: bool = False) -> ClassStatistics:
        """Return the statistics of a class.

        Args:
            features: Features of the samples, shape (n, d).
            keep_samples: Whether the features are kept if there are more than d samples.
        """
        zeros = torch.zeros(features.shape[1], dtype=torch.float64)
        empty = ClassStatistics(0, zeros, zeros, torch.zeros(0, features.shape[1]))
        return empty.extended(features, keep_samples=keep_samples)

    def extended(self, features: Tensor, *, keep_samples: bool = False) -> ClassStatistics:
        """Return the statistics with more samples of the class added.

        Args:
            features: Features of the additional samples, shape (n, d).
            keep_samples: Whether the features are kept if there are more than d samples. It has no effect if those of
                the earlier samples are not.
        """
        features = features.detach().float().cpu()
        wide = features.double()
        count, total = self.count + len(features), self.total + wide.sum(dim=0)
        directions = self.directions + F.normalize(wide, dim=1).sum(dim=0)
        if count <= features.shape[1] or (keep_samples and self.samples is not None):
            return ClassStatistics(count, total, directions, torch.cat([self.rows, features]))
        mean = total / count
        shift = (self.count**0.5 * (self.mean - mean))[None] if self.count else wide[:0]
        scatter = torch.cat([self.centred, shift, wide - mean])
        return ClassStatistics(count, total, directions, torch.linalg.qr(scatter, mode="r").R.float())

    def merged(self, other: ClassStatistics, *, keep_samples: bool = False) -> ClassStatistics:
        """Return the statistics of the samples of both classes: those of this class, then those of the other.

        Args:
            other: Statistics of the other class.
            keep_samples: Whether the features are kept if there are more than d samples. It has no effect if those of
                one of the classes are not.
        """
        if other.samples is not None:
            return self.extended(other.samples, keep_samples=keep_samples)
        if self.samples is not None:
            return other.extended(self.samples)
        count, total = self.count + other.count, self.total + other.total
        shifts = [(part.count**0.5 * (part.mean - total / count))[None] for part in (self, other)]
        scatter = torch.cat([self.centred, other.centred, *shifts])
        rows = torch.linalg.qr(scatter, mode="r").R.float()
        return ClassStatistics(count, total, self.directions + other.directions, rows)

    def compact(self) -> ClassStatistics:
        """Return the statistics without the features of more than d samples."""
        exceeds = self.samples is not None and self.count > self.rows.shape[1]
        return ClassStatistics.of(self.rows) if exceeds else self

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields as tensors for a file."""
        fields = {"total": self.total, "directions": self.directions, "rows": self.rows}
        return {"count": torch.tensor(self.count), **fields}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> ClassStatistics:
        """Return the statistics that `tensors` describes.

        Args:
            tensors: Result of `tensors`.

        Raises:
            KeyError: If a tensor is missing.
        """
        total, directions, rows = (tensors[name] for name in ("total", "directions", "rows"))
        return ClassStatistics(int(tensors["count"]), total, directions, rows)

    @property
    def samples(self) -> Tensor | None:
        """Features of the samples, shape (count, d), or None if only their scatter is stored."""
        return self.rows if len(self.rows) == self.count else None

    @property
    def mean(self) -> Tensor:
        """Mean of the features, shape (d,), float64."""
        return self.total / max(1, self.count)

    @property
    def centred(self) -> Tensor:
        """Matrix A of shape (r, d), float64, where AᵀA is the scatter matrix of the features around their mean."""
        return self.rows.double() - self.mean if self.samples is not None else self.rows.double()

    def unit_distances(self) -> Tensor | None:
        """Return the squared distances of the unit features, shape (count, count); None without two stored samples."""
        if self.samples is None or self.count < 2:
            return None
        unit = F.normalize(self.samples.float(), dim=1)
        return (2 - 2 * unit @ unit.T).clamp(min=0)

    @cached_property
    def pair_distances(self) -> tuple[float, float] | None:
        """Median and minimum of the squared distances of pairs of unit features; None without two stored samples."""
        distances = self.unit_distances()
        if distances is None:
            return None
        values = distances[tuple(torch.triu_indices(self.count, self.count, 1))]
        sampled = values[:: len(values) // 100_000 + 1]  # quantile() has an upper limit
        return float(sampled.quantile(0.5)), float(values.min())


class Spectrum(NamedTuple):
    """Eigendecomposition of a positive semidefinite matrix, without zero eigenvalues."""

    values: Tensor  # (r,)
    basis: Tensor  # (d, r): eigenvectors as columns


def eigendecomposition(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues, in ascending order, and the eigenvectors of a symmetric matrix.

    The algorithm of torch is fast, but may not converge if many channels are constant, as in a network whose training
    has diverged. Another algorithm is then used.

    Args:
        matrix: Shape (d, d).
    """
    try:
        values, basis = torch.linalg.eigh(matrix)
    except RuntimeError:  # LinAlgError, which is one
        from scipy.linalg import eigh

        decomposed = eigh(matrix.double().numpy(), driver="evr")
        values, basis = (torch.from_numpy(part).to(matrix.dtype) for part in decomposed)
    return values, basis


def gram_spectrum(blocks: Sequence[Tensor]) -> Spectrum:
    """Return the eigendecomposition of AᵀA, where A is the concatenation of the blocks.

    The smaller of the two Gram matrices AᵀA and AAᵀ is decomposed.

    Args:
        blocks: Matrices of shape (n_i, d), float64.

    Returns:
        Eigenvalues, shape (r,), and eigenvectors, shape (d, r).
    """
    if sum(map(len, blocks)) < blocks[0].shape[1]:
        rows = torch.cat(list(blocks))
        values, left = eigendecomposition(rows @ rows.T)
        nonzero = values > 1e-12 * values.amax()
        values = values[nonzero]
        return Spectrum(values, rows.T @ (left[:, nonzero] / values.sqrt()))
    values, basis = eigendecomposition(gram_matrix(blocks))
    nonzero = values > 1e-12 * values.amax()
    return Spectrum(values[nonzero], basis[:, nonzero])


def gram_matrix(blocks: Sequence[Tensor]) -> Tensor:
    """Return AᵀA, shape (d, d), where A is the concatenation of the blocks.

    Args:
        blocks: Matrices of shape (n_i, d), float64.
    """
    gram = torch.zeros(blocks[0].shape[1], blocks[0].shape[1], dtype=torch.float64)
    portion: list[Tensor] = []
    for block in blocks:
        portion.append(block)
        if sum(map(len, portion)) >= len(gram):  # products of few rows are slow
            gram.addmm_(torch.cat(portion).T, torch.cat(portion))
            portion = []
    return gram.addmm_(torch.cat(portion).T, torch.cat(portion)) if portion else gram


def counts_and_means(classes: Sequence[ClassStatistics]) -> tuple[Tensor, Tensor]:
    """Return the number of samples and the mean of each class.

    Args:
        classes: Statistics of each class, in the order of the labels.

    Returns:
        Counts, shape (classes,), and means, shape (classes, d), both float64.
    """
    counts = torch.tensor([stats.count for stats in classes], dtype=torch.float64)
    return counts, torch.stack([stats.mean for stats in classes])


def hold_out(samples: Sequence[Tensor], every: int = 5) -> tuple[list[Tensor], Tensor, Tensor]:
    """Split off a part of the samples of each class, for predictors without a closed form of leave-one-out estimates.

    Every fifth sample in the order of the norms is held out, so that the split does not depend on the order of the
    samples. Classes with fewer than three samples are not split.

    Args:
        samples: Features of the samples of each class, shape (n_i, d).
        every: Interval between two samples that are held out.

    Returns:
        The other samples of each class; the held-out samples, shape (n, d); and their labels, shape (n,), int64.
    """
    kept, held_out, labels = [], [], []
    for label, rows in enumerate(samples):
        ranked = rows[rows.norm(dim=1).argsort()]
        flags = torch.arange(len(rows)) % every == every // 2
        kept.append(ranked[~flags])
        held_out.append(ranked[flags])
        labels += [label] * int(flags.sum())
    return kept, torch.cat(held_out), torch.tensor(labels, dtype=torch.int64)


def inverse_of_sum(rows: Tensor, identity: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
    """Return B and w such that (cI + AᵀA + b11ᵀ)⁻¹ = (I - Bᵀ diag(w) B) / c.

    The matrix differs from a multiple of the identity only in the span of the rows of A and the vector of ones, so B
    has no more rows than A and one.

    Args:
        rows: A, shape (n, d), float64.
        identity: c > 0, a scalar.
        constant: b, a scalar. Eigenvalues of the matrix below 1e-6 c, which a negative b can cause, count as 1e-6 c.

    Returns:
        B, shape (r, d), with orthonormal rows, and w, shape (r,).
    """
    ones = torch.ones(1, rows.shape[1], dtype=rows.dtype)
    span = torch.linalg.qr(torch.cat([rows, ones]).T).Q  # (d, r)
    inner, sums = rows @ span, span.sum(dim=0)
    values, vectors = eigendecomposition(inner.T @ inner + constant * torch.outer(sums, sums))
    return (span @ vectors).T, 1 - identity / (values + identity).clamp(min=1e-6 * identity)
