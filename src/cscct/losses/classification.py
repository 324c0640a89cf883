"""Cross-entropy over all classes seen, and its balanced form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import at_least_float32, check_labels, connected_zero
from .terms import Term, classes_of, register

if TYPE_CHECKING:
    import torch.nn.functional as F
    from torch import Tensor
else:
    F = lazy_module("torch.nn.functional")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over all classes seen. logits: (k, classes); labels: (k,)."""
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, labels) if len(labels) else connected_zero(logits)


def balanced_cross_entropy(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Cross-entropy of logits + log counts: balanced softmax (Ren et al., 2020), mean over samples.

    A class with few images is pushed away by all others and seldom pulled. With the counts in the softmax, the logits
    themselves become those that equally many images of each class would have given.

    logits: (k, classes); labels: (k,); counts: (classes,), the training images of each class. A class without any has
    no part in it.
    """
    check_labels(labels, logits)
    if counts.shape != logits.shape[1:]:
        shape = tuple(counts.shape)
        raise ValueError(f"counts must have an entry for each of the {logits.shape[1]} classes, not the shape {shape}.")
    logits = at_least_float32(logits)
    return F.cross_entropy(logits + counts.to(logits).log(), labels) if len(labels) else connected_zero(logits)


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


@register
@dataclass(frozen=True)
class BalancedCrossEntropy(Term):
    """Cross-entropy corrected for how many images each class has (balanced softmax)."""

    instead: bool = False  # True: in the place of the method's own cross-entropy or NCA; False: added to it

    name = "balanced_cross_entropy"
    reads_teacher = False
    trains_head = True

    @property
    def replaces(self) -> tuple[str, ...]:
        return ("cross_entropy", "nca") if self.instead else ()

    def value(self, step: Step) -> Tensor:
        return balanced_cross_entropy(step.student.logits, step.batch.labels, classes_of(step).counts)
