"""Cross-space clustering (CSC): features stay close to where the previous network placed their class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import connected_zero, may_read_values, sample_labels, unit_pair
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    torch = lazy_module("torch")


def cross_space_clustering(student: Tensor, teacher: Tensor, labels: Tensor | ArrayLike) -> Tensor:
    """Cross-space clustering loss of CSCCT (Ashok et al., ECCV 2022).

    Each sample is pulled towards the teacher's features of its class and pushed away from those of other classes:

        (1 / k²) Σ_ij s_ij (1 − cos(student_i, teacher_j)),   s_ij = 1 if labels_i = labels_j, else −1

    The sum includes i = j. The loss is usually negative and must not be clamped. Time and memory are linear in the
    number of samples.

    Args:
        student: Features of the network in training, shape (k, d).
        teacher: Features of the same images from the previous network, shape (k, d). They receive no gradient.
        labels: Class of each sample, shape (k,): integers of any range.

    Returns:
        Unweighted scalar; 0 for an empty batch. The released code uses weight 3.

    Raises:
        ValueError: If shapes disagree or labels are not integers.

    Examples:
        >>> import torch
        >>> from cscct.losses import cross_space_clustering
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> cross_space_clustering(features, features, [0, 1])
        tensor(-0.5000)
    """
    student_unit, teacher_unit = unit_pair(student, teacher)
    group, groups = _group_numbers(sample_labels(labels, student))
    samples = len(group)
    if samples == 0:
        return connected_zero(student)
    # Σ_j s_ij teacher_j needs no (k, k) matrix: it is twice the sum over the class of i minus the sum over all classes.
    sums = teacher_unit.new_zeros(groups, teacher_unit.shape[1]).index_add_(0, group, teacher_unit)
    counts = group.new_zeros(groups).index_add_(0, group, torch.ones_like(group))
    target = 2 * sums - sums.sum(dim=0)  # (groups, d)
    mean_sign = 2 * counts.square().sum().to(target.dtype) / samples**2 - 1
    return mean_sign - (student_unit * target[group]).sum() / samples**2


def _group_numbers(labels: Tensor) -> tuple[Tensor, int]:
    """Number the classes of a batch from 0; return the number of each sample and a bound of the numbers."""
    if may_read_values(labels):
        classes, numbers = torch.unique(labels, return_inverse=True)
        return numbers, len(classes)
    ordered, order = labels.sort()
    numbers = ordered.diff(prepend=ordered[:1]).ne(0).cumsum(0)
    return torch.empty_like(order).scatter_(0, order, numbers), len(labels)


@register
@dataclass(frozen=True)
class CSC(Term):
    """Cross-space clustering: pull features to the teacher's features of their class, push them from other classes."""

    weight: float = 3.0

    name = "csc"
    compares_features = True
    needs_full_batch = True

    def value(self, step: Step) -> Tensor:
        return cross_space_clustering(step.student.features, teacher_of(step).features, step.batch.labels)
