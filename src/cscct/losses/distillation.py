"""Distillation of the previous network's predictions for the old classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from ..lazy import lazy_module
from ..structs import Step
from .common import check_positive, column_labels, connected_zero, promote
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def logit_distillation(logits: Tensor, teacher_logits: Tensor, temperature: float = 2.0) -> Tensor:
    """Knowledge distillation (Hinton et al., 2015): KL(teacher ‖ student) over the old classes, mean over samples.

        (1 / k) Σ_i Σ_c t_ic (log t_ic − log s_ic),   t = softmax(teacher_logits / T),   s = softmax(logits / T)

    The usual factor T² is left to the weight. The released code multiplies by T² / 4, which is 1 for T = 2.

    Args:
        logits: Student's logits, shape (k, seen). The first `old` columns are compared.
        teacher_logits: Previous network's logits, shape (k, old). They receive no gradient.
        temperature: Temperature T of both softmax functions.

    Returns:
        Unweighted scalar; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree, the teacher has more classes or the temperature is not positive.

    Examples:
        >>> import torch
        >>> from cscct.losses import logit_distillation
        >>> teacher_logits = torch.tensor([[2.0, 0.0]])
        >>> logit_distillation(torch.tensor([[2.0, 0.0, 9.0]]), teacher_logits)  # the third class is new
        tensor(0.)
        >>> logit_distillation(torch.tensor([[0.0, 2.0, 9.0]]), teacher_logits)
        tensor(0.4621)
    """
    check_positive(temperature, "temperature")
    _check_columns(logits, teacher_logits)
    if len(logits) == 0:
        return connected_zero(logits)
    student, teacher = promote(logits[:, : teacher_logits.shape[1]], teacher_logits.detach())
    log_s = F.log_softmax(student / temperature, dim=1)
    log_t = F.log_softmax(teacher / temperature, dim=1)
    return (log_t.exp() * (log_t - log_s)).sum(dim=1).mean()


def task_distillation(
    logits: Tensor, teacher_logits: Tensor, task_classes: Sequence[range], temperature: float = 2.0
) -> Tensor:
    """Knowledge distillation with a separate softmax for each task, summed over tasks (Castro et al., ECCV 2018).

    It is the sum of `logit_distillation` of the logits of the classes of each task.

    Args:
        logits: Student's logits, shape (k, seen).
        teacher_logits: Teacher's logits, shape (k, known). They receive no gradient.
        task_classes: Columns of each task. Tasks with columns that the teacher does not have are ignored.
        temperature: Temperature T of both softmax functions.

    Returns:
        Unweighted scalar; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree, the teacher has more classes or the temperature is not positive.

    Examples:
        >>> import torch
        >>> from cscct.losses import task_distillation
        >>> teacher_logits = torch.tensor([[2.0, 0.0, 9.0]])
        >>> task_distillation(torch.tensor([[0.0, 2.0, 5.0]]), teacher_logits, [range(2), range(2, 3)])
        tensor(0.4621)
    """
    _check_columns(logits, teacher_logits)
    known = [slice(task.start, task.stop) for task in task_classes if task.stop <= teacher_logits.shape[1]]
    parts = [logit_distillation(logits[:, task], teacher_logits[:, task], temperature) for task in known]
    return torch.stack(parts).sum() if parts else connected_zero(logits)


def bce_distillation(logits: Tensor, teacher_logits: Tensor | None, labels: Tensor | ArrayLike) -> Tensor:
    """Loss of the original iCaRL (Rebuffi et al., CVPR 2017): binary cross-entropy, mean over samples and classes.

    The target of an old class is the teacher's sigmoid for every sample. The target of a new class is 1 for its own
    samples and 0 for all others. Without a teacher, in the first task, all classes count as new.

    Args:
        logits: Student's logits, shape (k, seen).
        teacher_logits: Previous network's logits, shape (k, old), or None. They receive no gradient.
        labels: Class of each sample, shape (k,): integers from 0 to seen − 1.

    Returns:
        Scalar; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree, the teacher has more classes or a label is not a column of `logits`.

    Examples:
        >>> import torch
        >>> from cscct.losses import bce_distillation
        >>> bce_distillation(torch.tensor([[0.0, 40.0]]), None, [1])  # (log 2 + 0) / 2
        tensor(0.3466)
        >>> bce_distillation(torch.tensor([[0.0, 40.0]]), torch.tensor([[0.0]]), [1])  # targets 0.5 and 1
        tensor(0.3466)
    """
    labels = column_labels(labels, logits)
    if teacher_logits is None:
        teacher_logits = logits[:, :0]
    _check_columns(logits, teacher_logits)
    if len(logits) == 0:
        return connected_zero(logits)
    student, teacher = promote(logits, teacher_logits.detach())
    targets = torch.zeros_like(student).scatter_(1, labels[:, None], 1.0)
    targets[:, : teacher.shape[1]] = teacher.sigmoid()
    return F.binary_cross_entropy_with_logits(student, targets)


def _check_columns(logits: Tensor, teacher_logits: Tensor) -> None:
    if logits.ndim != 2 or teacher_logits.ndim != 2 or len(logits) != len(teacher_logits):
        raise ValueError(
            "logits and teacher_logits must be matrices with a row per sample, "
            f"not {tuple(logits.shape)} and {tuple(teacher_logits.shape)}."
        )
    if teacher_logits.shape[1] > logits.shape[1]:
        raise ValueError(f"the teacher has {teacher_logits.shape[1]} classes, the student only {logits.shape[1]}.")


@register
@dataclass(frozen=True)
class LogitDistillation(Term):
    """Knowledge distillation with softmax: old classes keep the previous network's probabilities."""

    temperature: PositiveFloat = 2.0
    """Temperature of the softmax over logits."""

    name = "logit_distillation"
    with_mixup = "same"
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return logit_distillation(step.student.logits, teacher_of(step).logits, self.temperature)


@register
@dataclass(frozen=True)
class TaskDistillation(Term):
    """Knowledge distillation with a separate softmax for the classes of each task that the teacher knows."""

    temperature: PositiveFloat = 2.0
    """Temperature of the softmax over logits."""

    name = "task_distillation"
    with_mixup = "same"
    trains_head = True

    def value(self, step: Step) -> Tensor:
        teacher, task = teacher_of(step), step.task
        return task_distillation(step.student.logits, teacher.logits, task.task_classes, self.temperature)


@register
@dataclass(frozen=True)
class BCEDistillation(Term):
    """Loss of the original iCaRL: a sigmoid per class, the targets of old classes from the previous network."""

    name = "bce_distillation"
    with_mixup = "weighted"
    first_task = True  # without a teacher
    trains_head = True

    def value(self, step: Step) -> Tensor:
        teacher = step.teacher.logits if step.teacher else None
        return bce_distillation(step.student.logits, teacher, step.batch.labels)
