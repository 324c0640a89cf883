"""BiC (Wu et al., CVPR 2019): distillation, and after each task a correction fitted on images that were held back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_module
from .base import AFTER_TASK, Method, TaskEnd, register
from .wa import WA

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

PENALTY = 0.05  # on the squares of scale - 1 and shift: the minimum exists, where held-back images are few, too


def fit_correction(logits: Tensor, labels: Tensor, n_old: int) -> tuple[float, float]:
    """Scale and shift of the columns from `n_old` on that give the least mean cross-entropy, plus a small penalty.
    The problem is convex; without images the answer is (1, 0). logits: (n, classes seen); labels: (n,)."""
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
def correct_bias(end: TaskEnd) -> None:
    """Fold the correction into the head: scale (w·f + b) + shift is a linear row again."""
    head = end.network.head
    scale, shift = fit_correction(*end.held_back(), end.task.n_old)
    with torch.no_grad():
        head.new_weight.mul_(scale)
        head.new_bias.mul_(scale).add_(shift)


NETWORK = WA.settings["network"] | {"head": "linear", "after_task": "correct_bias"}
BIC = register(
    Method(
        name="bic",
        summary="logit distillation; a scale and a shift of the new logits fitted on held-back images",
        settings={**WA.settings, "network": NETWORK, "memory": {"held_back": 0.1}},  # losses as WA
        like="lucir",
        additions=WA.additions,
    )
)
