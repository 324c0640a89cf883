"""The named weighted sum: one scalar to descend, and its parts for the log."""

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
    """Sum of the terms that are active in a task, each times its weight there, less those that another one replaces.
    Nothing is clamped.

    head_only: for a stage that trains the classifier alone; terms that depend on features only are left out.
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

        self.needs_whole_batch = any(term.whole_batch for term, _ in self.terms)

    def __call__(self, step: Step, whole: Step | None = None, share: float = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and the weighted parts, which add up to it.

        Where the batch is spread over processes, `whole` is the step of all of them, and `share` what a mean over the
        samples of this one counts for.
        """
        parts = {
            term.name: weight * (term.value(whole or step) if term.whole_batch else share * term.value(step))
            for term, weight in self.terms
        }
        return torch.stack(list(parts.values())).sum(), parts
