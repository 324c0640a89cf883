"""WA, weight aligning (Zhao et al., CVPR 2020): new classifier weights are scaled to the norm of old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_module
from .base import AFTER_TASK, Method, register
from .extension import TaskContext
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_module("torch")


@AFTER_TASK.register("align_norms")
def align_norms(context: TaskContext) -> None:
    """Multiply the weights of new classes by (mean norm of old weights) / (mean norm of new weights)."""
    head = context.network.head
    with torch.no_grad():
        head.new_weight.mul_(head.old_weight.norm(dim=1).mean() / head.new_weight.norm(dim=1).mean())


_LOSS = {  # (1 - lambda) cross-entropy + lambda distillation, lambda = old classes / classes seen
    "cross_entropy": {"weight_scaling": "new_over_seen"},
    "logit_distillation": {"weight_scaling": "old_over_seen", "temperature": 2.0},
}
WA = register(
    Method(
        name="wa",
        summary="logit distillation; after each task new classifier weights are scaled to the norm of old ones",
        family="bias correction",
        settings={
            "network": {**LINEAR_NETWORK, "head": "positive", "after_task": "align_norms"},
            "loss": _LOSS,
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
        # Losses of add-ons are scaled like the cross-entropy.
        addon_settings={name: {"weight_scaling": "new_over_seen"} for name in ("csc", "ct", "balanced_cross_entropy")},
    )
)
