"""Replay losses of ER-ACE and DER++, which treat new samples and samples of the memory differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..lazy import lazy_module
from ..structs import Step
from .common import (
    at_least_float32,
    check_choice,
    column_labels,
    connected_zero,
    masked_mean,
    may_read_values,
    sample_mask,
)
from .terms import Term, register

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

Classes = Literal["seen", "task", "batch"]
Holds = Literal["old", "seen"]
CLASSES: tuple[str, ...] = get_args(Classes)
HOLDS: tuple[str, ...] = get_args(Holds)
IGNORED = -100  # label that `F.cross_entropy` skips


def new_cross_entropy(
    logits: Tensor,
    labels: Tensor | ArrayLike,
    is_new: Tensor | ArrayLike,
    n_old: int = 0,
    classes: Classes = "task",
) -> Tensor:
    """Cross-entropy of the new samples over some of the classes, mean over new samples.

    - `seen`: over all classes seen (DER++).
    - `task`: over the classes of the current task, the columns from `n_old` on (ER-ACE, Caccia et al., ICLR 2022).
    - `batch`: over the classes of the new samples in the batch, as in the released code of ER-ACE.

    Args:
        logits: Scores before the softmax, shape (k, seen).
        labels: Class of each sample, shape (k,): integers from 0 to seen − 1.
        is_new: Whether each sample belongs to the current task and not to the memory, shape (k,).
        n_old: Number of classes of earlier tasks.
        classes: `seen`, `task` or `batch`.

    Returns:
        Scalar; 0 if the batch has no new sample.

    Raises:
        ValueError: If shapes disagree, a label is not a column of `logits` or `classes` is unknown.

    Examples:
        >>> import torch
        >>> from cscct.losses import new_cross_entropy
        >>> logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        >>> new_cross_entropy(logits, [1, 0], is_new=[True, False], n_old=1)  # log 2: class 0 is not compared
        tensor(0.6931)
    """
    check_choice(classes, CLASSES, "classes")
    values, labels, new = at_least_float32(logits), column_labels(labels, logits), sample_mask(is_new, logits)
    if classes == "task":
        values, labels = values[:, n_old:], labels - n_old
    elif classes == "batch":
        values, labels = _columns_of(values, labels, new)
    total, count = _cross_entropy_sum(values, labels, new)
    return total / _at_least_one(count)


def memory_cross_entropy(
    logits: Tensor,
    labels: Tensor | ArrayLike,
    is_new: Tensor | ArrayLike,
    n_old: int = 0,
    holds: Holds = "old",
) -> Tensor:
    """Cross-entropy of the samples of the memory over all classes seen.

    - `old`: mean over the samples of the memory, which holds the classes of earlier tasks.
    - `seen`: imitates a memory that also holds the classes of the current task, as in online learning. New samples
      count too, with a weight that gives a new class the same share as an old class.

    Args:
        logits: Scores before the softmax, shape (k, seen).
        labels: Class of each sample, shape (k,): integers from 0 to seen − 1.
        is_new: Whether each sample belongs to the current task and not to the memory, shape (k,).
        n_old: Number of classes of earlier tasks; read by `seen` only.
        holds: `old` or `seen`.

    Returns:
        Scalar; 0 if the batch has no sample of the memory.

    Raises:
        ValueError: If shapes disagree, a label is not a column of `logits`, `holds` is unknown, or it is `seen` and
            `n_old` is not between 1 and seen − 1.

    Examples:
        >>> import torch
        >>> from cscct.losses import memory_cross_entropy
        >>> memory_cross_entropy(torch.zeros(2, 4), [0, 3], is_new=[False, True])  # log 4
        tensor(1.3863)
    """
    check_choice(holds, HOLDS, "holds")
    values, labels, new = at_least_float32(logits), column_labels(labels, logits), sample_mask(is_new, logits)
    total, count = _cross_entropy_sum(values, labels, ~new)
    if holds == "old":
        return total / _at_least_one(count)
    classes = values.shape[1]
    if not 0 < n_old < classes:
        raise ValueError(f"n_old must be between 1 and {classes - 1} if holds is seen, not {n_old}.")
    new_total, new_count = _cross_entropy_sum(values, labels, new)
    share = (count / n_old) / (_at_least_one(new_count) / (classes - n_old))  # weight of a new sample
    return (total + share * new_total) / _at_least_one(count + share * new_count)


def logit_replay(logits: Tensor, stored: Tensor) -> Tensor:
    """Logit matching of DER (Buzzega et al., NeurIPS 2020): mean squared difference to the stored logits.

    Args:
        logits: Student's logits, shape (k, seen).
        stored: Logits stored with the exemplars, shape (k, n) with n ≤ seen. NaN marks entries without a stored
            value: new samples, and classes that were unknown when the exemplar was stored. They are converted to the
            dtype of `logits`, at least float32, and receive no gradient.

    Returns:
        Unweighted scalar, the mean over the stored entries; 0 if there are none.

    Raises:
        ValueError: If shapes disagree.

    Examples:
        >>> import torch
        >>> from cscct.losses import logit_replay
        >>> stored = torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan]])
        >>> logit_replay(torch.tensor([[3.0, 5.0], [7.0, 9.0]]), stored)  # (3 − 1)²
        tensor(4.)
    """
    if stored.ndim != 2 or len(stored) != len(logits) or stored.shape[1] > logits.shape[1]:
        raise ValueError(
            "stored must have a row for each sample and no more columns than logits, "
            f"not {tuple(stored.shape)} for logits of shape {tuple(logits.shape)}."
        )
    values = at_least_float32(logits)[:, : stored.shape[1]]
    targets = stored.detach().to(values)
    is_stored = ~targets.isnan()
    if not may_read_values(values):
        return masked_mean((values - targets.nan_to_num()).square(), is_stored)
    if not is_stored.any():
        return connected_zero(logits)
    return F.mse_loss(values[is_stored], targets[is_stored])


def _columns_of(values: Tensor, labels: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Restrict logits and labels to the classes of the chosen samples."""
    if may_read_values(values):
        present = labels[chosen].unique()
        return values[:, present], torch.searchsorted(present, labels)
    occurrences = torch.zeros(values.shape[1], dtype=torch.int64, device=values.device)
    present = occurrences.index_add_(0, labels, chosen.long()) > 0
    return values.masked_fill(~present, torch.finfo(values.dtype).min), labels


def _cross_entropy_sum(values: Tensor, labels: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor | int]:
    """Return the sum of the cross-entropies of the chosen samples, and their number."""
    if may_read_values(values):
        rows, labels = values[chosen], labels[chosen]
        return F.cross_entropy(rows, labels, reduction="sum"), len(rows)
    total = F.cross_entropy(values, labels.masked_fill(~chosen, IGNORED), reduction="sum")
    return total, chosen.sum(dtype=values.dtype)


def _at_least_one(count: Tensor | float) -> Tensor | float:
    return count.clamp(min=1) if isinstance(count, torch.Tensor) else max(count, 1)


@register
@dataclass(frozen=True)
class NewCrossEntropy(Term):
    """Cross-entropy of the new samples over all classes seen, those of their task (ER-ACE) or those of the batch."""

    classes: Classes = "task"
    """Classes of the softmax: all classes seen, those of the current task, or those of the new samples in the batch."""

    name = "new_cross_entropy"
    first_task = True
    needs_full_batch = True  # a mean over the new samples only
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        batch = step.batch
        return new_cross_entropy(step.student.logits, batch.labels, batch.is_new, step.task.n_old, self.classes)


@register
@dataclass(frozen=True)
class MemoryCrossEntropy(Term):
    """Cross-entropy of the exemplars over all classes seen."""

    holds: Holds = "old"
    """Classes that the memory holds: those of earlier tasks, or all classes seen, as in online learning."""

    name = "memory_cross_entropy"
    needs_full_batch = True  # a mean over the samples of the memory only
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        batch = step.batch
        return memory_cross_entropy(step.student.logits, batch.labels, batch.is_new, step.task.n_old, self.holds)


@register
@dataclass(frozen=True)
class LogitReplay(Term):
    """DER: exemplars keep the logits they had when they were stored (memory.store: logits)."""

    name = "logit_replay"
    needs_full_batch = True  # a mean over what the samples of the memory carry
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        if step.batch.stored is None:
            raise ValueError("the exemplars have no stored logits: set memory.store to logits.")
        return logit_replay(step.student.logits, step.batch.stored)
