"""The weighted sum of loss terms: a scalar to minimise, and its parts for the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step, Task
from .terms import Term

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")


class WeightedSum:
    """Weighted sum of the loss terms that are active in a task.

    A term is inactive if its weight in the task is 0, if it needs a previous task and there is none, or if an active
    term replaces it. The sum is not clamped.

    Args:
        terms: Terms of the method.
        task: Task in which the sum is used.
        head_only: Leave out the terms that do not depend on the head, for a stage that trains only the head.

    Attributes:
        terms: Active terms with their weights.
        needs_teacher: Whether an active term reads the teacher's output.

    Examples:
        >>> from cscct.losses import TERMS, WeightedSum
        >>> from cscct.structs import Task
        >>> terms = [TERMS["cross_entropy"](), TERMS["csc"](weight=2.0)]
        >>> [term.name for term, weight in WeightedSum(terms, Task(index=0, n_old=0, n_new=5)).terms]
        ['cross_entropy']
        >>> WeightedSum(terms, Task(index=1, n_old=5, n_new=5)).needs_teacher
        True
    """

    def __init__(self, terms: Sequence[Term], task: Task, *, head_only: bool = False):
        weighted = [(term, term.weight_for(task)) for term in terms]
        active = [
            (term, weight)
            for term, weight in weighted
            if weight != 0 and (term.first_task or not task.is_first) and (term.trains_head or not head_only)
        ]
        replaced = {name for term, _ in active for name in term.replaces}
        self.terms = [(term, weight) for term, weight in active if term.name not in replaced]
        self.needs_teacher = not task.is_first and any(term.reads_teacher for term, _ in self.terms)

        self.needs_full_batch = any(term.needs_full_batch for term, _ in self.terms)

    def __call__(self, step: Step, whole: Step | None = None, share: float = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum for a step.

        Args:
            step: Step of this process.
            whole: Step of all processes, if the batch is divided among several.
            share: Factor of a mean over the samples of this process.

        Returns:
            The total, a scalar, and the weighted parts by name, which add up to it.
        """
        parts = {
            term.name: weight * (_value(term, whole or step) if term.needs_full_batch else share * _value(term, step))
            for term, weight in self.terms
        }
        return torch.stack(list(parts.values())).sum(), parts


def _value(term: Term, step: Step) -> Tensor:
    """Return the unweighted loss. For mixed images, it is the weighted mean of the losses for both labels."""
    mixed = step.batch.mixed
    if mixed is None or term.with_mixup == "same":
        return term.value(step)
    other = step._replace(batch=step.batch._replace(labels=mixed.labels))
    return mixed.weight * term.value(step) + (1 - mixed.weight) * term.value(other)
