"""Herding: selection of the samples whose mean approximates the class mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..registry import Registry

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

MAX_PICKS = 1000

# Unit features of a class, shape (n, d), float64, and the number of samples to select -> indices in rank order
Herding = Callable[["Tensor", int], list[int]]
HERDINGS: Registry[Herding] = Registry("form of herding")


def herd(features: Tensor, count: int, form: str = "official") -> list[int]:
    """Select up to `count` samples whose running mean follows the mean of all samples.

    Forms:

    - `official` (released code of iCaRL and its successors): w ← w + μ − d_i with d_i = argmax w·d. A sample that is
      picked again changes w but gets no second rank. Selection stops after 1000 picks, so fewer than `count` indices
      may be returned.
    - `icarl` (printed algorithm): argmin ‖μ − (d_i + Σ selected)/k‖ without replacement.
    - `random`: a random subset that depends on the number of samples only.

    Args:
        features: Features of a class, shape (n, d). They are normalised to unit length.
        count: Maximum number of samples to select.
        form: Name in `HERDINGS`.

    Returns:
        Indices of the selected samples in rank order.

    Raises:
        ValueError: If `form` is unknown or `features` is not a matrix.
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
    selected: dict[int, None] = {}  # in the order of the first picks
    mean = unit.mean(dim=0)
    w = mean.clone()
    for _ in range(MAX_PICKS):
        pick = int((unit * w).sum(dim=1).argmax())  # with unit @ w, equal rows can differ in their last bits
        selected[pick] = None
        if len(selected) == count:
            break
        w += mean - unit[pick]
    return list(selected)


@HERDINGS.register("icarl")
def _icarl(unit: Tensor, count: int) -> list[int]:
    selected: list[int] = []
    mean = unit.mean(dim=0)
    total = torch.zeros_like(mean)
    taken = torch.zeros(len(unit), dtype=torch.bool, device=unit.device)
    for k in range(1, count + 1):
        distance = (mean - (unit + total) / k).norm(dim=1)
        pick = int(distance.masked_fill(taken, torch.inf).argmin())
        selected.append(pick)
        taken[pick] = True
        total += unit[pick]
    return selected


@HERDINGS.register("random")
def _random(unit: Tensor, count: int) -> list[int]:
    return torch.randperm(len(unit), generator=torch.Generator().manual_seed(len(unit)))[:count].tolist()
