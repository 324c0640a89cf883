"""Losses as named, weighted terms of a sum. A term says what it reads of a step; the maths is in its function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..registry import Registry
from ..structs import Output, SeenClasses, Step, Task

if TYPE_CHECKING:
    from torch import Tensor

TERMS: dict[str, type[Term]] = {}
GROWTHS: Registry[Callable[[Task], float]] = Registry("growth")  # what a weight is multiplied by in a task
GROWTHS["constant"] = lambda task: 1.0
GROWTHS["sqrt_old_over_new"] = lambda task: math.sqrt(task.n_old / task.n_new)
GROWTHS["sqrt_seen_over_new"] = lambda task: math.sqrt(task.n_seen / task.n_new)
GROWTHS["old_over_seen"] = lambda task: task.n_old / task.n_seen
GROWTHS["new_over_seen"] = lambda task: task.n_new / task.n_seen


@dataclass(frozen=True)
class Term:
    """Subclass, name it, say what to compute of a step, and `register`: the term is then usable in any method."""

    weight: float = 1.0
    growth: str = "constant"  # how the weight follows the numbers of old and new classes: a name in GROWTHS

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

    @property
    def replaces(self) -> tuple[str, ...]:
        """Names of terms that are left out where this one is active."""
        return ()

    def weight_for(self, task: Task) -> float:
        """The weight in a task."""
        return self.weight * GROWTHS[self.growth](task)


def register(term: type[Term]) -> type[Term]:
    if term.name in TERMS and TERMS[term.name] is not term:
        raise ValueError(f"a loss named {term.name} is already registered.")
    TERMS[term.name] = term
    return term


def teacher_of(step: Step) -> Output:
    if step.teacher is None:
        raise ValueError("this loss compares with the previous network, and there is none in the first task.")
    return step.teacher


def classes_of(step: Step) -> SeenClasses:
    if step.classes is None:
        raise ValueError("this loss asks what is known of the classes seen, and nothing is in the first task.")
    return step.classes
