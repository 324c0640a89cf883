"""Synaptic intelligence (Zenke et al., ICML 2017).

The importance of a parameter is its share in the decrease of the loss L along the path of training, relative to its
total change Δ in the task: Ω ← Ω + ω / (Δ² + ξ), with ω = −Σ_steps (∂L / ∂θ) (θ_after − θ_before). L excludes the
penalty. The paper's penalty c Σ Ω (θ − θ*)² is the loss here with the weight 2c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from ..lazy import lazy_module
from .base import register
from .extension import TaskContext, register_extension
from .importance import Importances, importance_method

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")


@register_extension
@dataclass(frozen=True)
class SI(Importances):
    """Share of each parameter in the decrease of the loss during training."""

    damping: PositiveFloat = 0.1
    """ξ, which bounds the importance of a parameter that changed little."""
    largest: PositiveFloat = 0.25
    """Upper bound of an importance. Training diverges if the product of importance, weight of the loss and learning
    rate exceeds 2 (1 + momentum)."""

    name = "si"

    def begin_task(self, context: TaskContext) -> None:
        """Start the path of a task."""
        for name, parameter in context.network.backbone.named_parameters():
            self.state[f"path.{name}"] = torch.zeros_like(parameter)
            self.state[f"start.{name}"] = parameter.detach().clone()

    def backward(self, total: Tensor, parts: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> None:
        """Compute the gradients, and keep those without the penalty until the end of the step."""
        penalty = parts.get("parameter_drift")
        (total if penalty is None else total - penalty).backward(retain_graph=penalty is not None)
        for parameter in parameters:
            if parameter.grad is not None:
                self.state[f"step.{id(parameter)}"] = torch.stack([parameter.grad, parameter.detach()])
        if penalty is not None:
            penalty.backward()

    def after_step(self, context: TaskContext) -> None:
        """Add the step to the path."""
        steps = {key: self.state.pop(key) for key in list(self.state) if key.startswith("step.")}
        for name, parameter in context.network.backbone.named_parameters():
            if f"step.{id(parameter)}" in steps:
                gradient, before = steps[f"step.{id(parameter)}"]
                self.state[f"path.{name}"] -= gradient * (parameter.detach() - before)

    def end_task(self, context: TaskContext) -> None:
        """Add the importances of the task."""
        importances = {}
        for name, parameter in context.network.backbone.named_parameters():
            change = parameter.detach() - self.state.pop(f"start.{name}")
            importances[name] = self.state.pop(f"path.{name}") / (change**2 + self.damping)
        self.consolidate(context, importances)


SI_METHOD = register(importance_method("si", 20.0, "their share in the decrease of the loss"))
