"""The exemplar memory: which images stand for a class, and the class means they give."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .specs import MemorySpec

HerdingForm = Literal["official", "icarl"]
MAX_PICKS = 1000


def herd(features: Tensor, count: int, form: HerdingForm = "official") -> list[int]:
    """Indices of up to `count` rows whose running mean follows the mean of all, in rank order.

    - `official` (the released code of iCaRL's descendants): w ← w + μ − d_i with d_i = argmax w·d. A row that is
      picked again moves w but takes no rank; after 1000 picks it stops, so it may return fewer than `count`.
    - `icarl` (the printed algorithm): argmin ‖μ − (d_i + Σ chosen)/k‖ without replacement.

    features: (n, d), normalised here.
    """
    if form not in ("official", "icarl"):
        raise ValueError(f"form must be official or icarl, not {form!r}.")
    if features.ndim != 2:
        raise ValueError(f"features must be a matrix (samples, dimensions), not {tuple(features.shape)}.")
    count = min(count, len(features))
    if count <= 0:
        return []
    unit = F.normalize(features.detach().double(), dim=1)
    mean = unit.mean(dim=0)
    return _official(unit, mean, count) if form == "official" else _icarl(unit, mean, count)


def _official(unit: Tensor, mean: Tensor, count: int) -> list[int]:
    chosen: dict[int, None] = {}  # keeps the order of first picks
    w = mean.clone()
    for _ in range(MAX_PICKS):
        pick = int((unit * w).sum(dim=1).argmax())  # not unit @ w: there equal rows may differ in their last bits
        chosen[pick] = None
        if len(chosen) == count:
            break
        w += mean - unit[pick]
    return list(chosen)


def _icarl(unit: Tensor, mean: Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    total = torch.zeros_like(mean)
    taken = torch.zeros(len(unit), dtype=torch.bool, device=unit.device)
    for k in range(1, count + 1):
        distance = (mean - (unit + total) / k).norm(dim=1)
        pick = int(distance.masked_fill(taken, torch.inf).argmin())
        chosen.append(pick)
        taken[pick] = True
        total += unit[pick]
    return chosen


class Memory:
    """Dataset indices of the exemplars of each class, in rank order: shrinking keeps the first ones."""

    def __init__(self, spec: MemorySpec):
        self.spec = spec
        self.exemplars: dict[int, list[int]] = {}

    def quota(self, classes_seen: int) -> int:
        return self.spec.quota(classes_seen)

    def shrink(self, classes_seen: int) -> None:
        quota = self.quota(classes_seen)
        self.exemplars = {label: ranked[:quota] for label, ranked in self.exemplars.items()}

    def keep(self, label: int, indices: list[int], features: Tensor, classes_seen: int) -> None:
        """Herd one class: `indices` are its images, `features` what the network says of them, row by row."""
        ranks = herd(features, self.quota(classes_seen), self.spec.herding)
        self.exemplars[label] = [indices[rank] for rank in ranks]


def class_mean(features: Tensor, varied: Tensor | None = None) -> Tensor:
    """Mean of unit features, averaged with the same over a second view where there is one, and normalised."""
    mean = F.normalize(features, dim=1).mean(dim=0)
    if varied is not None:
        mean = (mean + F.normalize(varied, dim=1).mean(dim=0)) / 2
    return F.normalize(mean, dim=0)


def nearest_mean(features: Tensor, means: Tensor) -> Tensor:
    """The class whose mean is nearest to each unit feature. features: (k, d); means: (classes, d)."""
    return torch.cdist(F.normalize(features, dim=1), means).argmin(dim=1)
