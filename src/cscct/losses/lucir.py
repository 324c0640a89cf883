"""LUCIR's losses: features keep their direction, and old classes keep a margin to new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ..structs import Step
from .common import (
    at_least_float32,
    check_positive,
    column_labels,
    connected_zero,
    masked_mean,
    may_read_values,
    unit_pair,
)
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor


def less_forget(student: Tensor, teacher: Tensor) -> Tensor:
    """Less-forget constraint of LUCIR (Hou et al., CVPR 2019): mean of 1 − cos(student_i, teacher_i).

    Args:
        student: Features of the network in training, shape (k, d).
        teacher: Features of the same images from the previous network, shape (k, d). They receive no gradient.

    Returns:
        Unweighted scalar in [0, 2]; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree.

    Examples:
        >>> import torch
        >>> from cscct.losses import less_forget
        >>> teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> less_forget(5 * teacher, teacher)
        tensor(0.)
        >>> less_forget(teacher.flip(1), teacher)
        tensor(1.)
    """
    student_unit, teacher_unit = unit_pair(student, teacher)
    if len(student) == 0:
        return connected_zero(student)
    return 1 - (student_unit * teacher_unit).sum(dim=1).mean()


def margin_ranking(cosines: Tensor, labels: Tensor | ArrayLike, n_old: int, k: int = 2, margin: float = 0.5) -> Tensor:
    """Margin ranking loss of LUCIR (Hou et al., CVPR 2019).

    The mean of max(0, margin − (cosines_iy − cosines_ij)) over the samples i of old classes y and the k new classes j
    with the largest cosines.

    Args:
        cosines: Unscaled cosines to the classes, shape (samples, classes). The first `n_old` columns are old classes.
        labels: Class of each sample, shape (samples,): integers from 0 to classes − 1.
        n_old: Number of old classes.
        k: New classes per sample; all of them if there are fewer.
        margin: Difference at which a pair no longer contributes.

    Returns:
        Unweighted scalar; 0 if the batch has no sample of an old class or all classes are old.

    Raises:
        ValueError: If shapes disagree, a label is not a column of `cosines` or `k` is not positive.

    Examples:
        >>> import torch
        >>> from cscct.losses import margin_ranking
        >>> margin_ranking(torch.tensor([[0.75, 0.5, -1.0]]), [0], n_old=1)  # mean of 0.25 and 0
        tensor(0.1250)
    """
    labels = column_labels(labels, cosines)
    check_positive(k, "k")
    n_new = cosines.shape[1] - n_old
    is_old = labels < n_old
    select_rows = may_read_values(cosines)
    if n_new <= 0 or (select_rows and not is_old.any()):
        return connected_zero(cosines)
    values = at_least_float32(cosines)
    if select_rows:
        values, labels = values[is_old], labels[is_old]
    own = values.gather(1, labels[:, None])  # (rows, 1)
    hardest = values[:, n_old:].topk(min(k, n_new), dim=1).values  # (rows, k)
    losses = (margin - (own - hardest)).clamp(min=0)
    return losses.mean() if select_rows else masked_mean(losses, is_old[:, None])


@register
@dataclass(frozen=True)
class LessForget(Term):
    """LUCIR: features keep the direction that the previous network gives them."""

    name = "less_forget"
    compares_features = True
    with_mixup = "same"

    def value(self, step: Step) -> Tensor:
        return less_forget(step.student.features, teacher_of(step).features)


@register
@dataclass(frozen=True)
class MarginRanking(Term):
    """LUCIR: samples of old classes stay closer to their class than to the nearest new classes."""

    k: PositiveInt = 2
    """Number of new classes that each sample of an old class is compared with, the most similar ones."""
    margin: float = 0.5
    """Margin between the cosine of the own class and that of a new class."""

    name = "margin_ranking"
    needs_full_batch = True  # a mean over the old samples only
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return margin_ranking(step.student.scores, step.batch.labels, step.task.n_old, self.k, self.margin)
