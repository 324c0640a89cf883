"""Memory aware synapses (Aljundi et al., ECCV 2018), global version.

The importance of a parameter is the sensitivity of the output F(x), the logits, to it, Ω ← Ω + E|∂‖F(x)‖² / ∂θ|. It
needs no labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ..lazy import lazy_module
from .base import register
from .extension import TaskContext, register_extension
from .importance import Importances, importance_method, mean_over_images

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_module("torch")


@register_extension
@dataclass(frozen=True)
class MAS(Importances):
    """Sensitivity of the output to each parameter."""

    samples: PositiveInt = 500
    """Images of each task from which the sensitivity is estimated."""

    name = "mas"

    def end_task(self, context: TaskContext) -> None:
        """Add the mean of the absolute gradients of single images."""
        sensitivity = mean_over_images(
            context, self.samples, lambda output, batch: output.logits.square().sum(), torch.abs
        )
        self.consolidate(context, sensitivity)


MAS_METHOD = register(importance_method("mas", 1.0, "the sensitivity of the output to them"))
