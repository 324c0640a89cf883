"""Losses as named, weighted terms of a sum. A term says what it reads of a step; the maths is in its function.

The functions are reached through the package, which imports them at first use: settings do without torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from .. import losses
from ..structs import Output, Step, Task
from .forms import CTForm, NCAForm

if TYPE_CHECKING:
    from torch import Tensor

Growth = Literal["constant", "sqrt_old_over_new", "sqrt_seen_over_new"]
TERMS: dict[str, type[Term]] = {}


@dataclass(frozen=True)
class Term:
    """Subclass, name it, say what to compute of a step, and `register`: the term is then usable in any method."""

    weight: float = 1.0
    growth: Growth = "constant"  # how the weight follows the numbers of old and new classes

    # Read by the settings: unknown keys and wrong types are refused.
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }
    name: ClassVar[str]
    first_task: ClassVar[bool] = False  # True: active in the first task too, where there is nothing old
    reads_teacher: ClassVar[bool] = True
    whole_batch: ClassVar[bool] = False  # True: not a mean over samples; sees the batch of all processes at once
    trains_head: ClassVar[bool] = False  # False: depends on features only, so a head-only stage leaves it out

    def value(self, step: Step) -> Tensor:
        raise NotImplementedError

    def weight_for(self, task: Task) -> float:
        if self.growth == "sqrt_old_over_new":
            return self.weight * math.sqrt(task.n_old / task.n_new)
        if self.growth == "sqrt_seen_over_new":
            return self.weight * math.sqrt(task.n_seen / task.n_new)
        return self.weight


def register(term: type[Term]) -> type[Term]:
    if term.name in TERMS and TERMS[term.name] is not term:
        raise ValueError(f"a loss named {term.name} is already registered.")
    TERMS[term.name] = term
    return term


def teacher_of(step: Step) -> Output:
    if step.teacher is None:
        raise ValueError("this loss compares with the previous network, and there is none in the first task.")
    return step.teacher


@register
@dataclass(frozen=True)
class CrossEntropy(Term):
    """Cross-entropy over all classes seen."""

    name = "cross_entropy"
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return losses.cross_entropy(step.student.logits, step.batch.labels)


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
        return losses.nca(step.student.scores, step.batch.labels, step.student.scale, self.margin, self.form)


@register
@dataclass(frozen=True)
class LogitDistillation(Term):
    """iCaRL with softmax: old classes keep the previous network's probabilities."""

    temperature: PositiveFloat = 2.0

    name = "logit_distillation"
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return losses.logit_distillation(step.student.logits, teacher_of(step).logits, self.temperature)


@register
@dataclass(frozen=True)
class BCEDistillation(Term):
    """The original iCaRL: one sigmoid a class, old ones aimed at what the previous network says."""

    name = "bce_distillation"
    first_task = True  # with plain targets
    trains_head = True

    def value(self, step: Step) -> Tensor:
        teacher = step.teacher.logits if step.teacher else None
        return losses.bce_distillation(step.student.logits, teacher, step.batch.labels)


@register
@dataclass(frozen=True)
class LessForget(Term):
    """LUCIR: features keep the direction that the previous network gives them."""

    name = "less_forget"

    def value(self, step: Step) -> Tensor:
        return losses.less_forget(step.student.features, teacher_of(step).features)


@register
@dataclass(frozen=True)
class MarginRanking(Term):
    """LUCIR: exemplars stay closer to their class than to the nearest new ones."""

    k: PositiveInt = 2
    margin: float = 0.5

    name = "margin_ranking"
    whole_batch = True  # a mean over the old samples only
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return losses.margin_ranking(step.student.scores, step.batch.labels, step.task.n_old, self.k, self.margin)


@register
@dataclass(frozen=True)
class PODSpatial(Term):
    """PODNet: maps keep their sums along each axis."""

    name = "pod_spatial"

    def value(self, step: Step) -> Tensor:
        return losses.pod_spatial(step.student.maps, teacher_of(step).maps)


@register
@dataclass(frozen=True)
class PODFlat(Term):
    """PODNet: features keep their direction."""

    name = "pod_flat"

    def value(self, step: Step) -> Tensor:
        return losses.pod_flat(step.student.features, teacher_of(step).features)


@register
@dataclass(frozen=True)
class CSC(Term):
    """Cross-space clustering: to where the class lay in the previous space, away from the other classes."""

    weight: float = 3.0

    name = "csc"
    whole_batch = True

    def value(self, step: Step) -> Tensor:
        return losses.cross_space_clustering(step.student.features, teacher_of(step).features, step.batch.labels)


@register
@dataclass(frozen=True)
class CT(Term):
    """Controlled transfer: new samples keep their similarities to old ones."""

    weight: float = 1.5
    temperature: PositiveFloat = 2.0
    form: CTForm = "official"

    name = "ct"
    whole_batch = True

    def value(self, step: Step) -> Tensor:
        teacher = teacher_of(step).features
        return losses.controlled_transfer(
            step.student.features, teacher, step.batch.is_new, self.temperature, self.form
        )
