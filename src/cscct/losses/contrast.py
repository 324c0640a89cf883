"""Losses of Co2L (Cha et al., ICCV 2021) on projected features of two views of each image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from ..lazy import lazy_module
from ..structs import Step
from .common import connected_zero, promote, unit
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def _log_shares(vectors: Tensor, temperature: float) -> Tensor:
    """Return the logarithms of the softmax over the cosines to all other rows, (n, n); 0 on the diagonal."""
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    cosines = unit(vectors) @ unit(vectors).T
    return F.log_softmax((cosines / temperature).masked_fill(itself, -torch.inf), dim=1).masked_fill(itself, 0.0)


def asymmetric_contrast(vectors: Tensor, labels: Tensor, is_new: Tensor, temperature: float = 0.5) -> Tensor:
    """Return the supervised contrastive loss with new samples as anchors.

    For a new sample i and the other samples p of its class, it is −mean_p log softmax_{j≠i}(cos(z_i, z_j) / τ)_p. The
    sum over new samples is divided by the number of all samples, as in the released code.

    Args:
        vectors: Projected features z of both views, shape (n, d).
        labels: Shape (n,).
        is_new: Shape (n,), bool.
        temperature: Temperature τ of the cosines.

    Returns:
        Scalar; zero, connected to the graph, for fewer than two samples.

    Examples:
        >>> import torch
        >>> from cscct.losses import asymmetric_contrast
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> loss = asymmetric_contrast(vectors, torch.tensor([1, 0, 1]), torch.tensor([True, False, True]))
        >>> print(f"{loss.item():.4f}")
        0.0846
    """
    if len(vectors) < 2:
        return connected_zero(vectors)
    positive = (labels[:, None] == labels).fill_diagonal_(False)
    means = (_log_shares(vectors, temperature) * positive).sum(dim=1) / positive.sum(dim=1).clamp(min=1)
    return -(means * is_new).sum() / len(vectors)


def relation_distillation(
    student: Tensor, teacher: Tensor, temperature: float = 0.2, teacher_temperature: float = 0.01
) -> Tensor:
    """Return the distillation of the similarities of each sample to all others, mean over samples.

    It is −Σ_{j≠i} p_ij log q_ij with q_i = softmax_{j≠i}(cos(z_i, z_j) / κ), and p_i the same for the teacher with κ*.

    Args:
        student: Projected features z of both views, shape (n, d).
        teacher: The teacher's, shape (n, d). They receive no gradient.
        temperature: Temperature κ of the cosines.
        teacher_temperature: Temperature κ* of the teacher's cosines.

    Returns:
        Scalar; zero, connected to the graph, for fewer than two samples.

    Examples:
        >>> import torch
        >>> from cscct.losses import relation_distillation
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> print(f"{relation_distillation(vectors, vectors).item():.4f}")
        0.2355
    """
    if len(student) < 2:
        return connected_zero(student)
    student, teacher = promote(student, teacher.detach())
    targets = _log_shares(teacher, teacher_temperature).exp().fill_diagonal_(0.0)
    return -(targets * _log_shares(student, temperature)).sum() / len(student)


@register
@dataclass(frozen=True)
class AsymmetricContrast(Term):
    """Co2L: supervised contrastive loss whose anchors are new samples."""

    temperature: PositiveFloat = 0.5
    """Temperature of the cosines."""

    name = "asymmetric_contrast"
    first_task = True
    reads_extension = True
    reads_teacher = False
    needs_full_batch = True

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        vectors = step.extension.project((step.student, step.second))
        return asymmetric_contrast(vectors, step.batch.labels.repeat(2), step.batch.is_new.repeat(2), self.temperature)


@register
@dataclass(frozen=True)
class RelationDistillation(Term):
    """Co2L: samples keep their similarities to all other samples of the batch."""

    temperature: PositiveFloat = 0.2
    """Temperature of the cosines."""
    teacher_temperature: PositiveFloat = 0.01
    """Temperature of the teacher's cosines."""

    name = "relation_distillation"
    reads_extension = True
    needs_full_batch = True

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        student = step.extension.project((step.student, step.second))
        teacher = step.extension.project((teacher_of(step), step.second_teacher), previous=True)
        return relation_distillation(student, teacher, self.temperature, self.teacher_temperature)
