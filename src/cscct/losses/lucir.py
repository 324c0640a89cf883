"""LUCIR's two constraints: keep each feature's direction, and keep old classes clear of new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ..structs import Step
from .common import at_least_float32, check_labels, check_pair, check_positive, connected_zero, unit
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    from torch import Tensor


def less_forget(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over samples of 1 − cos(student_i, teacher_i). student, teacher: (k, d)."""
    check_pair(student, teacher)
    if len(student) == 0:
        return connected_zero(student)
    return 1 - (unit(student) * unit(teacher.detach())).sum(dim=1).mean()


def margin_ranking(cosines: Tensor, labels: Tensor, n_old: int, k: int = 2, margin: float = 0.5) -> Tensor:
    """Mean of max(0, margin − (own cosine − cosine of a new class)) over old-class samples and their k hardest
    new classes. `cosines` are unscaled, (samples, classes), the first `n_old` columns old. k is cut to the number
    of new classes. Zero, connected to the graph, when the batch has no sample of an old class.
    """
    check_labels(labels, cosines)
    check_positive(k, "k")
    n_new = cosines.shape[1] - n_old
    is_old = labels < n_old
    if n_new <= 0 or not is_old.any():
        return connected_zero(cosines)
    old = at_least_float32(cosines)[is_old]
    own = old.gather(1, labels[is_old, None])  # (h, 1)
    hardest = old[:, n_old:].topk(min(k, n_new), dim=1).values  # (h, k)
    return (margin - (own - hardest)).clamp(min=0).mean()


@register
@dataclass(frozen=True)
class LessForget(Term):
    """LUCIR: features keep the direction that the previous network gives them."""

    name = "less_forget"

    def value(self, step: Step) -> Tensor:
        return less_forget(step.student.features, teacher_of(step).features)


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
        return margin_ranking(step.student.scores, step.batch.labels, step.task.n_old, self.k, self.margin)
