"""What is kept of the features of classes, and what predictors compute from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

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


class Spectrum(NamedTuple):
    """Of a sum of outer products."""

    values: Tensor  # (r,): eigenvalues that are not zero
    basis: Tensor  # (d, r)


def spectrum(blocks: Sequence[Tensor]) -> Spectrum:
    """Of the sum of outer products of the rows of all blocks, by the smaller of the two Gram matrices."""
    if sum(map(len, blocks)) < blocks[0].shape[1]:
        rows = torch.cat(list(blocks))
        values, left = torch.linalg.eigh(rows @ rows.T)
        kept = values > 1e-12 * values.amax()
        values = values[kept]
        return Spectrum(values, rows.T @ (left[:, kept] / values.sqrt()))
    gram = torch.zeros(blocks[0].shape[1], blocks[0].shape[1], dtype=torch.float64)
    for block in blocks:
        gram.addmm_(block.T, block)
    values, basis = torch.linalg.eigh(gram)
    kept = values > 1e-12 * values.amax()
    return Spectrum(values[kept], basis[:, kept])


def counts_and_means(classes: Sequence[ClassStatistics]) -> tuple[Tensor, Tensor]:
    """(classes,) and (classes, d), float64."""
    counts = torch.tensor([one.count for one in classes], dtype=torch.float64)
    return counts, torch.stack([one.mean for one in classes])


def left_out_images(classes: Sequence[ClassStatistics]) -> tuple[Tensor, Tensor]:
    """Features and labels of images to leave out one by one: of classes that have others, evenly spaced where there are
    many."""
    most, found, labels = max(2, LEFT_OUT // len(classes)), [classes[0].rows[:0].double()], []
    for label, one in enumerate(classes):
        if one.samples is not None and one.count > 1:
            chosen = torch.linspace(0, one.count - 1, min(one.count, most)).round().long()
            found.append(one.samples[chosen].double())
            labels += [label] * len(chosen)
    return torch.cat(found), torch.tensor(labels, dtype=torch.int64)
