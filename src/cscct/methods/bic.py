"""BiC, bias correction (Wu et al., CVPR 2019): a scale and a shift of the new logits, fitted on held-back images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_module
from .base import AFTER_TASK, Method, register
from .extension import TaskContext
from .replay import LINEAR_NETWORK
from .wa import WA

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

PENALTY = 0.05  # on the squares of scale - 1 and shift, so that a minimum exists even with few held-back images


def fit_correction(logits: Tensor, labels: Tensor, n_old: int) -> tuple[float, float]:
    """Fit a scale and a shift of the logits of new classes by cross-entropy with a small penalty, a convex problem.

    Args:
        logits: Shape (n, classes seen).
        labels: Shape (n,).
        n_old: Number of old classes; the columns from `n_old` on are corrected.

    Returns:
        Scale and shift; (1, 0) without images.
    """
    from scipy.optimize import minimize

    if not len(labels):
        return 1.0, 0.0
    old, new = logits.double().tensor_split([n_old], dim=1)

    def objective(point: list[float]) -> tuple[float, list[float]]:
        scale, shift = at = torch.tensor(point, dtype=torch.float64, requires_grad=True)
        value = F.cross_entropy(torch.cat([old, scale * new + shift], dim=1), labels)
        value = value + PENALTY * ((scale - 1) ** 2 + shift**2)
        return value.item(), torch.autograd.grad(value, at)[0].tolist()

    scale, shift = minimize(objective, [1.0, 0.0], jac=True, method="BFGS").x
    return float(scale), float(shift)


@AFTER_TASK.register("correct_bias")
def correct_bias(context: TaskContext) -> None:
    """Apply the fitted correction to the head: scale * (w·f + b) + shift is a linear function of f again."""
    head = context.network.head
    scale, shift = fit_correction(*context.held_back(), context.task.n_old)
    with torch.no_grad():
        head.new_weight.mul_(scale)
        head.new_bias.mul_(scale).add_(shift)


BIC = register(
    Method(
        name="bic",
        summary="logit distillation; a scale and a shift of the new logits fitted on held-back images",
        family="bias correction",
        settings={
            "network": {**LINEAR_NETWORK, "after_task": "correct_bias"},
            "loss": WA.settings["loss"],
            "memory": {"held_back": 0.1},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
        addon_settings=WA.addon_settings,
    )
)
