"""The exemplar memory: which images stand for a class, what they carry, and the class means they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from .lazy import lazy_module
from .registry import Registry
from .specs import MemorySpec
from .structs import Output

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

MAX_PICKS = 1000

# Unit features of a class (n, d), float64, and how many are wanted -> indices in rank order
Herding = Callable[["Tensor", int], list[int]]
HERDINGS: Registry[Herding] = Registry("form of herding")
# What a network says of images -> what each of them carries, (k, n)
Payload = Callable[[Output], "Tensor"]
PAYLOADS: Registry[Payload] = Registry("payload")
PAYLOADS["logits"] = lambda output: output.logits
PAYLOADS["features"] = lambda output: output.features


def herd(features: Tensor, count: int, form: str = "official") -> list[int]:
    """Indices of up to `count` rows whose running mean follows the mean of all, in rank order.

    - `official` (the released code of iCaRL's descendants): w ← w + μ − d_i with d_i = argmax w·d. A row that is
      picked again moves w but takes no rank; after 1000 picks it stops, so it may return fewer than `count`.
    - `icarl` (the printed algorithm): argmin ‖μ − (d_i + Σ chosen)/k‖ without replacement.

    features: (n, d), normalised here.
    """
    if form not in HERDINGS:
        raise ValueError(f"form must be {' or '.join(HERDINGS)}, not {form!r}.")
    if features.ndim != 2:
        raise ValueError(f"features must be a matrix (samples, dimensions), not {tuple(features.shape)}.")
    count = min(count, len(features))
    if count <= 0:
        return []
    unit = F.normalize(features.detach().double(), dim=1)
    return HERDINGS[form](unit, count)


@HERDINGS.register("official")
def _official(unit: Tensor, count: int) -> list[int]:
    chosen: dict[int, None] = {}  # keeps the order of first picks
    mean = unit.mean(dim=0)
    w = mean.clone()
    for _ in range(MAX_PICKS):
        pick = int((unit * w).sum(dim=1).argmax())  # not unit @ w: there equal rows may differ in their last bits
        chosen[pick] = None
        if len(chosen) == count:
            break
        w += mean - unit[pick]
    return list(chosen)


@HERDINGS.register("icarl")
def _icarl(unit: Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    mean = unit.mean(dim=0)
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
    """Dataset indices of the exemplars of each class, in rank order: shrinking keeps the first ones. `carried` holds
    what they carry, row by row, where the settings ask for it: what the network said of them when they were chosen."""

    def __init__(self, spec: MemorySpec):
        self.spec = spec
        self.exemplars: dict[int, list[int]] = {}
        self.carried: dict[int, Tensor] = {}

    def quota(self, classes_seen: int) -> int:
        """Exemplars of a class."""
        return self.spec.exemplars_of(classes_seen)

    def shrink(self, classes_seen: int) -> None:
        """Make room for the classes that have been seen."""
        quota = self.quota(classes_seen)
        self.exemplars = {label: ranked[:quota] for label, ranked in self.exemplars.items()}
        self.carried = {label: rows[:quota] for label, rows in self.carried.items()}

    def keep(self, label: int, indices: list[int], features: Tensor, classes_seen: int) -> None:
        """Herd one class: `indices` are its images, `features` what the network says of them, row by row."""
        ranks = herd(features, self.quota(classes_seen), self.spec.herding)
        self.exemplars[label] = [indices[rank] for rank in ranks]


def pad_carried(carried: Mapping[int, Tensor], exemplars: Sequence[tuple[int, Sequence[int]]]) -> Tensor | None:
    """What the exemplars of some classes carry, one after another, as one matrix: rows that are shorter than the
    longest, because they were stored when fewer classes were known, end in NaN.

    exemplars: label and indices, class by class.
    """
    if not carried:
        return None
    width = max(rows.shape[1] for rows in carried.values())
    blocks = []
    for label, ranked in exemplars:
        block = torch.full((len(ranked), width), torch.nan)
        if label in carried:
            block[:, : carried[label].shape[1]] = carried[label]
        blocks.append(block)
    return torch.cat(blocks)


def class_mean(features: Tensor, varied: Tensor | None = None) -> Tensor:
    """Mean of unit features, averaged with the same over a second view where there is one, and normalised."""
    mean = F.normalize(features, dim=1).mean(dim=0)
    if varied is not None:
        mean = (mean + F.normalize(varied, dim=1).mean(dim=0)) / 2
    return F.normalize(mean, dim=0)


def nearest_mean(features: Tensor, means: Tensor) -> Tensor:
    """The class whose mean is nearest to each unit feature. features: (k, d); means: (classes, d)."""
    return torch.cdist(F.normalize(features, dim=1), means).argmin(dim=1)
