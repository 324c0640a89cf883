"""Losses of FOSTER (Wang et al., ECCV 2022): boosting and distillation with classes weighted by their images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from ..lazy import lazy_module
from ..specs import Fraction
from ..structs import Step
from .common import at_least_float32, column_labels, connected_zero, promote
from .terms import Term, classes_of, register, teacher_of

if TYPE_CHECKING:
    import torch.nn.functional as F
    from torch import Tensor
else:
    F = lazy_module("torch.nn.functional")


def class_weights(counts: Tensor, beta: float) -> Tensor:
    """Return 1 / (1 − βⁿ) for each class with n images, scaled to a mean of 1."""
    weights = 1 / (1 - beta ** counts.clamp(min=1).double())
    return weights / weights.mean()


@register
@dataclass(frozen=True)
class BoostingCrossEntropy(Term):
    """Cross-entropy of logits that are divided by the weight of their class."""

    beta: Fraction = 0.97
    """Base of the effective number of images."""

    name = "boosting_cross_entropy"
    reads_teacher = False
    trains_head = True
    first_task = True

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        logits = at_least_float32(step.student.logits)
        if step.classes is not None:
            logits = logits / class_weights(step.classes.counts, self.beta).to(logits.dtype)
        labels = column_labels(step.batch.labels, logits)
        return F.cross_entropy(logits, labels) if len(logits) else connected_zero(logits)


@register
@dataclass(frozen=True)
class BalancedDistillation(Term):
    """Cross-entropy with the teacher's probabilities, multiplied by the weight of their class and normalised."""

    beta: Fraction = 0.97
    """Base of the effective number of images."""
    temperature: PositiveFloat = 2.0
    """Temperature of the softmax over logits."""

    name = "balanced_distillation"
    trains_head = True

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        student, teacher = promote(step.student.logits, teacher_of(step).logits.detach())
        if not len(student):
            return connected_zero(student)
        known = teacher.shape[1]
        weights = class_weights(classes_of(step).counts, self.beta)[:known].to(teacher.dtype)
        targets = (teacher / self.temperature).softmax(dim=1) * weights
        return F.cross_entropy(student[:, :known] / self.temperature, targets / targets.sum(dim=1, keepdim=True))
