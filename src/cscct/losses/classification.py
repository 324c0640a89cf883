"""Cross-entropy over all classes seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import at_least_float32, connected_zero
from .terms import Term, register

if TYPE_CHECKING:
    import torch.nn.functional as F
    from torch import Tensor
else:
    F = lazy_module("torch.nn.functional")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over all classes seen. logits: (k, classes); labels: (k,)."""
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, labels) if len(labels) else connected_zero(logits)


@register
@dataclass(frozen=True)
class CrossEntropy(Term):
    """Cross-entropy over all classes seen."""

    name = "cross_entropy"
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return cross_entropy(step.student.logits, step.batch.labels)
