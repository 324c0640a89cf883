"""Dynamically expandable representation (Yan et al., CVPR 2021), without the pruning of channels.

Each task adds a feature extractor; earlier ones are frozen. An auxiliary classifier on the new features separates the
new classes from each other and from all old ones. The classifier is then trained again on a balanced set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..losses import Term
from ..losses import register as register_term
from ..structs import Step
from .base import Method, register
from .extension import Extension, TaskContext, register_extension
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


@register_extension
@dataclass(frozen=True)
class AuxiliaryClassifier(Extension):
    """Linear classifier of the newest features."""

    merge_old: bool = True
    """Whether all old classes are one class of it."""

    name = "auxiliary_classifier"

    def begin_task(self, context: TaskContext) -> None:
        """Initialise the classifier of the task at random."""
        width: int = context.network.backbone.width  # type: ignore[assignment]
        weight = torch.empty(context.task.n_new + 1 if self.merge_old else context.task.n_seen, width)
        weight.uniform_(-(width**-0.5), width**-0.5, generator=context.generator("auxiliary"))
        self.state["weight"] = weight.to(context.device)

    def parameters(self) -> Sequence[Tensor]:
        """Return the weights of the classifier."""
        return [self.state["weight"].requires_grad_()]


@register_term
@dataclass(frozen=True)
class AuxiliaryCrossEntropy(Term):
    """Cross-entropy of the auxiliary classifier."""

    name = "auxiliary_cross_entropy"
    reads_extension = True
    reads_teacher = False

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        weight, labels = step.extension.state["weight"], step.batch.labels
        logits = F.linear(step.student.features[:, -weight.shape[1] :], weight)
        merged = (labels - step.task.n_old + 1).clamp(min=0)  # 0: an old class
        return F.cross_entropy(logits, merged if step.extension.merge_old else labels)


_SETTINGS = {
    "network": {**LINEAR_NETWORK, "expand": "extractor"},
    "loss": {"cross_entropy": {}, "auxiliary_cross_entropy": {}},
    "extension": {"auxiliary_classifier": {}},
    "stages": {"classifier": {"epochs": 30, "lr": 0.1, "reset": "head", "batch_norm": "frozen"}},
    "predict": {"predictor": "classifier"},
}
_SUMMARY = "each task adds a feature extractor; auxiliary classifier on the new features"
DER = register(Method("der", _SUMMARY, _SETTINGS, preset_from="lucir", family="architecture"))
