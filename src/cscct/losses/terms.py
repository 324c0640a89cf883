"""Losses as named, weighted terms of a sum. A term says what it reads of a step; the maths is in its function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from ..structs import Output, Step, Task
from .common import connected_zero, raised
from .csc import cross_space_clustering
from .ct import CTForm, controlled_transfer
from .distillation import bce_distillation, logit_distillation
from .lucir import less_forget, margin_ranking
from .nca import NCAForm, nca
from .pod import pod_flat, pod_spatial

Growth = Literal["constant", "sqrt_old_over_new", "sqrt_seen_over_new"]
TERMS: dict[str, type[Term]] = {}


@dataclass(frozen=True)
class Term:
    """Subclass, name the function, say how to call it, and `register`: the term is then usable in any method."""

    weight: float = 1.0
    growth: Growth = "constant"  # how the weight follows the numbers of old and new classes

    # Read by the settings: unknown keys and wrong types are refused.
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }
    name: ClassVar[str]
    function: ClassVar[Callable[..., Tensor]]
    first_task: ClassVar[bool] = False  # True: active in the first task too, where there is nothing old
    reads_teacher: ClassVar[bool] = True
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
    name = "cross_entropy"
    function = staticmethod(F.cross_entropy)
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        logits, labels = raised(step.student.logits), step.batch.labels
        return F.cross_entropy(logits, labels) if len(labels) else connected_zero(logits)


@register
@dataclass(frozen=True)
class NCA(Term):
    margin: float = 0.6
    form: NCAForm = "official"

    name = "nca"
    function = staticmethod(nca)
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return nca(step.student.scores, step.batch.labels, step.student.scale, self.margin, self.form)


@register
@dataclass(frozen=True)
class LogitDistillation(Term):
    temperature: PositiveFloat = 2.0

    name = "logit_distillation"
    function = staticmethod(logit_distillation)
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return logit_distillation(step.student.logits, teacher_of(step).logits, self.temperature)


@register
@dataclass(frozen=True)
class BCEDistillation(Term):
    name = "bce_distillation"
    function = staticmethod(bce_distillation)
    first_task = True  # with plain targets
    trains_head = True

    def value(self, step: Step) -> Tensor:
        teacher = step.teacher.logits if step.teacher else None
        return bce_distillation(step.student.logits, teacher, step.batch.labels)


@register
@dataclass(frozen=True)
class LessForget(Term):
    name = "less_forget"
    function = staticmethod(less_forget)

    def value(self, step: Step) -> Tensor:
        return less_forget(step.student.features, teacher_of(step).features)


@register
@dataclass(frozen=True)
class MarginRanking(Term):
    k: PositiveInt = 2
    margin: float = 0.5

    name = "margin_ranking"
    function = staticmethod(margin_ranking)
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return margin_ranking(step.student.scores, step.batch.labels, step.task.n_old, self.k, self.margin)


@register
@dataclass(frozen=True)
class PODSpatial(Term):
    name = "pod_spatial"
    function = staticmethod(pod_spatial)

    def value(self, step: Step) -> Tensor:
        return pod_spatial(step.student.maps, teacher_of(step).maps)


@register
@dataclass(frozen=True)
class PODFlat(Term):
    name = "pod_flat"
    function = staticmethod(pod_flat)

    def value(self, step: Step) -> Tensor:
        return pod_flat(step.student.features, teacher_of(step).features)


@register
@dataclass(frozen=True)
class CSC(Term):
    weight: float = 3.0

    name = "csc"
    function = staticmethod(cross_space_clustering)

    def value(self, step: Step) -> Tensor:
        return cross_space_clustering(step.student.features, teacher_of(step).features, step.batch.labels)


@register
@dataclass(frozen=True)
class CT(Term):
    weight: float = 1.5
    temperature: PositiveFloat = 2.0
    form: CTForm = "official"

    name = "ct"
    function = staticmethod(controlled_transfer)

    def value(self, step: Step) -> Tensor:
        teacher = teacher_of(step).features
        return controlled_transfer(step.student.features, teacher, step.batch.is_new, self.temperature, self.form)
