"""Losses as named, weighted terms of a sum: the base class, the registry and the weights.

A term passes the right parts of a `Step` to its loss function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..registry import Registry
from ..structs import Output, SeenClasses, Step, Task

if TYPE_CHECKING:
    from torch import Tensor

TERMS: dict[str, type[Term]] = {}
WEIGHT_SCALINGS: Registry[Callable[[Task], float]] = Registry("weight scaling")  # factors of weights in a task
WEIGHT_SCALINGS["constant"] = lambda task: 1.0
WEIGHT_SCALINGS["sqrt_old_over_new"] = lambda task: math.sqrt(task.n_old / task.n_new)
WEIGHT_SCALINGS["sqrt_seen_over_new"] = lambda task: math.sqrt(task.n_seen / task.n_new)
WEIGHT_SCALINGS["old_over_seen"] = lambda task: task.n_old / task.n_seen
WEIGHT_SCALINGS["new_over_seen"] = lambda task: task.n_new / task.n_seen


@dataclass(frozen=True)
class Term:
    """A named, weighted loss. Its fields are the settings under `loss.NAME`.

    To add a loss, derive a frozen dataclass, set `name`, implement `value` and apply `register`. Every method can then
    use it.

    Attributes:
        weight: Factor of the loss. A term with weight 0 is not computed.
        weight_scaling: Name in `WEIGHT_SCALINGS`: how the weight depends on the numbers of old and new classes.
        name: Name of the loss in settings, metrics and figures.
        first_task: Whether the loss is also active in the first task, which has no teacher and no old classes.
        reads_teacher: Whether `value` reads `step.teacher`.
        reads_extension: Whether `value` reads `step.extension`, so that a method without an extension is rejected.
        needs_full_batch: Whether the loss is not a mean over samples, so that it must see the batch of all processes.
        trains_head: Whether the loss depends on the head. A stage that trains only the head leaves out the other terms.
        compares_features: Whether features or maps of student and teacher must have the same shape, so that a growing
            backbone is rejected.
        with_mixup: How the loss is computed for images that are mixed with each other: it is the same if it reads no
            labels (`same`), the weighted mean for both labels if it is a mean over samples of a function of the output
            and the label (`weighted`), or it cannot be computed, so that mixup is rejected (`rejected`).

    Examples:
        >>> from dataclasses import dataclass
        >>> from cscct.losses import Term
        >>> @dataclass(frozen=True)
        ... class FeatureNorm(Term):
        ...     "Mean squared norm of the features."
        ...     power: float = 2.0
        ...     name = "feature_norm"
        ...     def value(self, step):
        ...         return step.student.features.norm(dim=1).pow(self.power).mean()
        >>> FeatureNorm(weight=0.1)
        FeatureNorm(weight=0.1, weight_scaling='constant', power=2.0)
    """

    weight: float = 1.0
    """Factor of the loss. A loss with weight 0 is not computed."""
    weight_scaling: str = "constant"
    """How the weight depends on the numbers of old and new classes."""

    # Read by the settings: unknown keys and wrong types are refused.
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }
    name: ClassVar[str]
    first_task: ClassVar[bool] = False
    reads_teacher: ClassVar[bool] = True
    reads_extension: ClassVar[bool] = False
    needs_full_batch: ClassVar[bool] = False  # True: not a mean over samples; sees the batch of all processes at once
    trains_head: ClassVar[bool] = False
    compares_features: ClassVar[bool] = False  # True: student and teacher need features of the same dimension
    with_mixup: ClassVar[Literal["rejected", "weighted", "same"]] = "rejected"

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step.

        Args:
            step: Batch, outputs of student and teacher, task and class statistics.

        Returns:
            Scalar with a gradient.
        """
        raise NotImplementedError

    @property
    def replaces(self) -> tuple[str, ...]:
        """Names of terms that are left out of the sum if this term is active."""
        return ()

    def weight_for(self, task: Task) -> float:
        """Return the weight in a task.

        Args:
            task: The task, with its numbers of old and new classes.

        Returns:
            `weight` times the factor of `weight_scaling`.
        """
        return self.weight * WEIGHT_SCALINGS[self.weight_scaling](task)


def register(term: type[Term]) -> type[Term]:
    """Add a loss term to `TERMS` under its name; usable as a class decorator.

    Args:
        term: Subclass of `Term` with a `name`.

    Returns:
        The same class.

    Raises:
        ValueError: If another class is registered under the name.
    """
    if term.name in TERMS and TERMS[term.name] is not term:
        raise ValueError(f"a loss named {term.name} is already registered.")
    TERMS[term.name] = term
    return term


def teacher_of(step: Step) -> Output:
    """Return the teacher's output.

    Raises:
        ValueError: If the step has no teacher.
    """
    if step.teacher is None:
        raise ValueError("this loss needs the previous network, which the first task does not have.")
    return step.teacher


def classes_of(step: Step) -> SeenClasses:
    """Return the statistics of the classes seen.

    Raises:
        ValueError: If the step has none.
    """
    if step.classes is None:
        raise ValueError("this loss needs statistics of the classes seen, which the first task does not have.")
    return step.classes
