"""Losses that treat new samples and samples of the memory differently: ER-ACE and DER++ are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..lazy import lazy_module
from ..structs import Step
from .common import at_least_float32, check_labels, check_per_sample, connected_zero
from .terms import Term, register

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

Classes = Literal["seen", "task", "batch"]
Holds = Literal["old", "seen"]


def new_cross_entropy(
    logits: Tensor, labels: Tensor, is_new: Tensor, n_old: int = 0, classes: Classes = "task"
) -> Tensor:
    """Cross-entropy of the new samples, over the columns that they are to be told apart among.

    - `seen`: all classes seen;
    - `task`: those of the present task, the columns from `n_old` on (ER-ACE);
    - `batch`: those that new samples of this batch belong to (ER-ACE's code, where tasks may be unknown).

    Zero, connected to the graph, when no sample is new.
    """
    if classes not in get_args(Classes):
        raise ValueError(f"classes must be seen, task or batch, not {classes!r}.")
    rows, own = _rows(logits, labels, is_new)
    if not len(own):
        return connected_zero(logits)
    if classes == "task":
        return F.cross_entropy(rows[:, n_old:], own - n_old)
    if classes == "batch":
        present, own = own.unique(return_inverse=True)
        return F.cross_entropy(rows[:, present], own)
    return F.cross_entropy(rows, own)


def memory_cross_entropy(
    logits: Tensor, labels: Tensor, is_new: Tensor, n_old: int = 0, holds: Holds = "old"
) -> Tensor:
    """Cross-entropy of the samples of the memory over all classes seen.

    - `old`: of the memory as it is, which holds classes of earlier tasks;
    - `seen`: of a memory that is filled while a task is learned, as in online learning, and holds every class alike:
      new samples count too, each so much that a new class has the share of an old one.

    Zero, connected to the graph, when the batch has no sample of the memory.
    """
    if holds not in get_args(Holds):
        raise ValueError(f"holds must be old or seen, not {holds!r}.")
    rows, own = _rows(logits, labels, ~is_new.bool())
    if not len(own):
        return connected_zero(logits)
    if holds == "old" or len(own) == len(labels):
        return F.cross_entropy(rows, own)
    new, new_labels = _rows(logits, labels, is_new)
    share = (len(own) / n_old) / (len(new_labels) / (logits.shape[1] - n_old))  # of a new sample beside an old one's 1
    total = F.cross_entropy(rows, own, reduction="sum") + share * F.cross_entropy(new, new_labels, reduction="sum")
    return total / (len(own) + share * len(new_labels))


def logit_replay(logits: Tensor, stored: Tensor) -> Tensor:
    """Mean squared difference between logits and those that were stored, over all entries that were.

    logits: (k, seen); stored: (k, n) with n up to seen, NaN where nothing was stored: for new samples, and in columns
    of classes that were unknown then. Zero, connected to the graph, when nothing was stored.
    """
    if stored.ndim != 2 or len(stored) != len(logits) or stored.shape[1] > logits.shape[1]:
        raise ValueError(
            "stored must have a row for each sample and no more columns than logits, "
            f"not {tuple(stored.shape)} beside {tuple(logits.shape)}."
        )
    there = ~stored.isnan()
    if not there.any():
        return connected_zero(logits)
    values = at_least_float32(logits)[:, : stored.shape[1]][there]
    return F.mse_loss(values, stored.detach()[there].to(values))


def _rows(logits: Tensor, labels: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and labels of some samples."""
    check_labels(labels, logits)
    check_per_sample(chosen, len(logits), "is_new")
    chosen = chosen.bool()
    return at_least_float32(logits)[chosen], labels[chosen]


@register
@dataclass(frozen=True)
class NewCrossEntropy(Term):
    """Cross-entropy of the new samples, over all classes, those of their task (ER-ACE) or those of the batch."""

    classes: Classes = "task"

    name = "new_cross_entropy"
    first_task = True
    whole_batch = True  # a mean over the new samples only
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

    name = "memory_cross_entropy"
    whole_batch = True  # a mean over the samples of the memory only
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        batch = step.batch
        return memory_cross_entropy(step.student.logits, batch.labels, batch.is_new, step.task.n_old, self.holds)


@register
@dataclass(frozen=True)
class LogitReplay(Term):
    """DER: exemplars keep the logits they had when they were stored (memory.carry: logits)."""

    name = "logit_replay"
    whole_batch = True  # a mean over what the samples of the memory carry
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        if step.batch.carried is None:
            raise ValueError("the exemplars carry no logits: set memory.carry to logits.")
        return logit_replay(step.student.logits, step.batch.carried)
