"""Losses as named, weighted terms of a sum. A term says what it reads of a step; the maths is in its function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..structs import Output, Step, Task

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
