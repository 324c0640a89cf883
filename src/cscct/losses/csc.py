"""Cross-space clustering: a class is kept as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import check_pair, check_per_sample, connected_zero, unit
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")


def cross_space_clustering(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """(1/k²) Σ_ij s_ij (1 − cos(student_i, teacher_j)), s_ij = +1 within a class (i = j included), else −1.

    Every sample is pulled to where its class lay in the teacher's space and pushed from where the others lay.
    Usually negative, and meant to be: never clamp it. Gradient reaches the student only.

    student, teacher: (k, d) features of the same images; labels: (k,).
    """
    check_pair(student, teacher)
    samples = len(student)
    check_per_sample(labels, samples, "labels")
    if samples == 0:
        return connected_zero(student)
    here, there = unit(student), unit(teacher.detach())
    _, group, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    # Σ_j s_ij there_j needs no k × k matrix: twice the sum over one's own class, less the sum over all.
    own = here.new_zeros(len(counts), here.shape[1]).index_add_(0, group, there)
    target = 2 * own - own.sum(dim=0)  # (classes, d)
    mean_sign = 2 * counts.square().sum().to(here.dtype) / samples**2 - 1
    return mean_sign - (here * target[group]).sum() / samples**2


@register
@dataclass(frozen=True)
class CSC(Term):
    """Cross-space clustering: to where the class lay in the previous space, away from the other classes."""

    weight: float = 3.0

    name = "csc"
    whole_batch = True

    def value(self, step: Step) -> Tensor:
        return cross_space_clustering(step.student.features, teacher_of(step).features, step.batch.labels)
