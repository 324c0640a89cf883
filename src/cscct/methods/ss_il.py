"""SS-IL (Ahn et al., ICCV 2021): separated softmax and task-wise distillation.

The softmax of a new sample is over the new classes, that of an exemplar over the old classes, so that no gradient
lowers the scores of the other group. The logits of each earlier task are distilled by themselves. Every batch has the
same fraction of exemplars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..losses import Term
from ..losses import register as register_term
from ..losses.common import at_least_float32, column_labels, connected_zero
from ..structs import Step
from .base import Method, register
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def separated_cross_entropy(logits: Tensor, labels: Tensor, n_old: int) -> Tensor:
    """Return the mean cross-entropy of logits (k, classes), with a softmax over the old or the new classes each."""
    logits, labels = at_least_float32(logits), column_labels(labels, logits)
    if not len(logits):
        return connected_zero(logits)
    is_new = torch.arange(logits.shape[1], device=logits.device) >= n_old
    return F.cross_entropy(logits.masked_fill((labels >= n_old)[:, None] != is_new, -torch.inf), labels)


@register_term
@dataclass(frozen=True)
class SeparatedCrossEntropy(Term):
    """Cross-entropy with separate softmax functions over old and new classes."""

    name = "separated_cross_entropy"
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        return separated_cross_entropy(step.student.logits, step.batch.labels, step.task.n_old)


_LOSS = {"separated_cross_entropy": {}, "task_distillation": {"weight": 4.0, "temperature": 2.0}}  # 4: T²
_TRAIN = {"sampler": "mixed", "old_fraction": 0.2}
_SETTINGS = {"network": LINEAR_NETWORK, "loss": _LOSS, "train": _TRAIN, "predict": {"predictor": "classifier"}}
_SUMMARY = "separate softmax over old and new classes, distillation of each earlier task by itself"
SS_IL = register(Method("ss-il", _SUMMARY, _SETTINGS, preset_from="lucir", family="distillation"))
