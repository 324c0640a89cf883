"""Distillation of what the previous classifier said of the old classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from ..lazy import lazy_module
from ..structs import Step
from .common import at_least_float32, check_labels, check_positive, connected_zero
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def logit_distillation(logits: Tensor, teacher_logits: Tensor, temperature: float = 2.0) -> Tensor:
    """Batch mean of KL(teacher ‖ student) between softmax(logits / T) over the old columns.

    logits: (k, seen); teacher_logits: (k, old). The usual factor T² is left to the weight: the released code
    multiplies by T²·0.25, which is 1 at T = 2.
    """
    check_positive(temperature, "temperature")
    _check_columns(logits, teacher_logits)
    if len(logits) == 0:
        return connected_zero(logits)
    old = at_least_float32(logits)[:, : teacher_logits.shape[1]]
    log_s = F.log_softmax(old / temperature, dim=1)
    log_t = F.log_softmax(at_least_float32(teacher_logits.detach()) / temperature, dim=1)
    return (log_t.exp() * (log_t - log_s)).sum(dim=1).mean()


def bce_distillation(logits: Tensor, teacher_logits: Tensor | None, labels: Tensor) -> Tensor:
    """The original iCaRL loss: binary cross-entropy over all (sample, class) pairs, with the old columns' targets
    replaced, for every sample, by the teacher's sigmoids. Without a teacher (first task) plain one-hot targets.
    """
    check_labels(labels, logits)
    if len(logits) == 0:
        return connected_zero(logits)
    values = at_least_float32(logits)
    targets = F.one_hot(labels, values.shape[1]).to(values.dtype)
    if teacher_logits is not None:
        _check_columns(logits, teacher_logits)
        targets[:, : teacher_logits.shape[1]] = torch.sigmoid(at_least_float32(teacher_logits.detach()))
    return F.binary_cross_entropy_with_logits(values, targets)


def _check_columns(logits: Tensor, teacher_logits: Tensor) -> None:
    if logits.ndim != 2 or teacher_logits.ndim != 2 or len(logits) != len(teacher_logits):
        raise ValueError(
            "logits and teacher_logits must be matrices with a row per sample, "
            f"not {tuple(logits.shape)} and {tuple(teacher_logits.shape)}."
        )
    if teacher_logits.shape[1] > logits.shape[1]:
        raise ValueError(f"the teacher knows {teacher_logits.shape[1]} classes, the student only {logits.shape[1]}.")


@register
@dataclass(frozen=True)
class LogitDistillation(Term):
    """iCaRL with softmax: old classes keep the previous network's probabilities."""

    temperature: PositiveFloat = 2.0

    name = "logit_distillation"
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return logit_distillation(step.student.logits, teacher_of(step).logits, self.temperature)


@register
@dataclass(frozen=True)
class BCEDistillation(Term):
    """The original iCaRL: one sigmoid a class, old ones aimed at what the previous network says."""

    name = "bce_distillation"
    first_task = True  # with plain targets
    trains_head = True

    def value(self, step: Step) -> Tensor:
        teacher = step.teacher.logits if step.teacher else None
        return bce_distillation(step.student.logits, teacher, step.batch.labels)
