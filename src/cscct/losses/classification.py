"""Cross-entropy over all classes seen, plain and balanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import as_tensor, at_least_float32, column_labels, connected_zero
from .terms import Term, classes_of, register

if TYPE_CHECKING:
    import torch.nn.functional as F
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    F = lazy_module("torch.nn.functional")


def cross_entropy(logits: Tensor, labels: Tensor | ArrayLike) -> Tensor:
    """Cross-entropy over all classes seen, mean over samples.

    Args:
        logits: Scores before the softmax, shape (k, classes).
        labels: Class of each sample, shape (k,): integers from 0 to classes − 1.

    Returns:
        Scalar; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree or a label is not a column of `logits`.

    Examples:
        >>> import torch
        >>> from cscct.losses import cross_entropy
        >>> cross_entropy(torch.tensor([[3.0, 3.0], [0.0, 0.0]]), [0, 1])  # log 2
        tensor(0.6931)
    """
    labels = column_labels(labels, logits)
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, labels) if len(labels) else connected_zero(logits)


def balanced_cross_entropy(logits: Tensor, labels: Tensor | ArrayLike, counts: Tensor | ArrayLike) -> Tensor:
    """Balanced softmax (Ren et al., NeurIPS 2020): cross-entropy of logits + log counts, mean over samples.

    Training images of other classes push a class with few images away more often than its own images pull it. With
    the counts inside the softmax, the logits approach those that equally many images of each class would give.

    Args:
        logits: Scores before the softmax, shape (k, classes).
        labels: Class of each sample, shape (k,): integers from 0 to classes − 1.
        counts: Number of training images of each class, shape (classes,). A class with count 0 is ignored.

    Returns:
        Scalar; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree or a label is not a column of `logits`.

    Examples:
        >>> import torch
        >>> from cscct.losses import balanced_cross_entropy
        >>> balanced_cross_entropy(torch.zeros(1, 2), [0], counts=[1, 3])  # −log 1/4
        tensor(1.3863)
    """
    labels = column_labels(labels, logits)
    counts = as_tensor(counts, logits.device)
    if counts.shape != logits.shape[1:]:
        raise ValueError(f"counts must have shape ({logits.shape[1]},), a count per class, not {tuple(counts.shape)}.")
    logits = at_least_float32(logits)
    return F.cross_entropy(logits + counts.to(logits).log(), labels) if len(labels) else connected_zero(logits)


@register
@dataclass(frozen=True)
class CrossEntropy(Term):
    """Cross-entropy over all classes seen."""

    name = "cross_entropy"
    with_mixup = "weighted"
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return cross_entropy(step.student.logits, step.batch.labels)


@register
@dataclass(frozen=True)
class BalancedCrossEntropy(Term):
    """Cross-entropy corrected for the number of images of each class (balanced softmax)."""

    replaces_base_loss: bool = False
    """Whether the loss replaces the cross-entropy or NCA of the method; false: it is added."""

    name = "balanced_cross_entropy"
    with_mixup = "weighted"
    reads_teacher = False
    trains_head = True

    @property
    def replaces(self) -> tuple[str, ...]:
        return ("cross_entropy", "nca") if self.replaces_base_loss else ()

    def value(self, step: Step) -> Tensor:
        return balanced_cross_entropy(step.student.logits, step.batch.labels, classes_of(step).counts)
