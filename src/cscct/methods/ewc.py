"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017), in its online form (Schwarz et al., ICML 2018).

The importance is the diagonal of the empirical Fisher information, Ω ← decay · Ω + E[(∂ log p(y|x) / ∂θ)²].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from ..lazy import lazy_module
from .base import register
from .extension import TaskContext, register_extension
from .importance import Importances, importance_method, mean_over_images

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


@register_extension
@dataclass(frozen=True)
class EWC(Importances):
    """Fisher information of each parameter."""

    samples: PositiveInt = 500
    """Images of each task from which the Fisher information is estimated."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.9
    """Factor of the Fisher information of earlier tasks, at the end of each task."""
    largest: PositiveFloat = 5e-3
    """Upper bound of an importance. Training diverges if the product of importance, weight of the loss and learning
    rate exceeds 2 (1 + momentum)."""

    name = "ewc"

    def end_task(self, context: TaskContext) -> None:
        """Add the mean of the squared gradients of single images, with p over the classes of the task."""
        n_old = context.task.n_old
        fisher = mean_over_images(
            context,
            self.samples,
            lambda output, batch: F.cross_entropy(output.logits[:, n_old:], batch.labels - n_old),
            torch.square,
        )
        self.consolidate(context, fisher)


EWC_METHOD = register(importance_method("ewc", 1000.0, "their Fisher information"))
