"""PODNet's classification loss on class similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..lazy import lazy_module
from ..structs import Step
from .common import at_least_float32, check_labels, connected_zero
from .terms import Term, register

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")

NCAForm = Literal["official", "paper"]


def nca(
    similarities: Tensor,
    labels: Tensor,
    scale: Tensor | float = 1.0,
    margin: float = 0.6,
    form: NCAForm = "official",
) -> Tensor:
    """Neighbourhood-component loss, mean over samples. similarities: (k, classes), unscaled.

    - `official` (default, what published PODNet numbers were made with): the margin is taken from every score, the
      row maximum subtracted, and the positive's term in the denominator is 1 instead of absent:
      −s_y + log(1 + Σ_{j≠y} exp s_j). The margin has no effect, and the gradient flows through the maximum.
    - `paper`: max(0, log Σ_{j≠y} exp(η s_j) − η (s_y − margin)), the hinge per sample.

    With a single class both are identically 0.
    """
    check_labels(labels, similarities)
    if form not in ("official", "paper"):
        raise ValueError(f"form must be official or paper, not {form!r}.")
    if len(similarities) == 0 or similarities.shape[1] == 1:
        return connected_zero(similarities * scale)
    values = at_least_float32(similarities)
    own = torch.zeros_like(values, dtype=torch.bool).scatter_(1, labels[:, None], True)
    if form == "paper":
        scaled = scale * values
        positive = scaled[own] - scale * margin
        return (scaled.masked_fill(own, -torch.inf).logsumexp(dim=1) - positive).clamp(min=0).mean()
    scaled = scale * (values - margin)
    scaled = scaled - scaled.max(dim=1, keepdim=True).values
    return (scaled.masked_fill(own, 0.0).logsumexp(dim=1) - scaled[own]).mean()


@register
@dataclass(frozen=True)
class NCA(Term):
    """PODNet's classification loss, over class similarities."""

    margin: float = 0.6
    form: NCAForm = "official"

    name = "nca"
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return nca(step.student.scores, step.batch.labels, step.student.scale, self.margin, self.form)
