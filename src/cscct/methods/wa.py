"""WA (Zhao et al., CVPR 2020): distillation, and after each task new rows scaled to the norm of old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_module
from .base import AFTER_TASK, Method, TaskEnd, register

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_module("torch")


@AFTER_TASK.register("align_norms")
def align_norms(end: TaskEnd) -> None:
    """Multiply the rows of the new classes by (mean norm of old rows) / (mean norm of new rows). Biases stay."""
    head = end.network.head
    with torch.no_grad():
        head.new_weight.mul_(head.old_weight.norm(dim=1).mean() / head.new_weight.norm(dim=1).mean())


WA = register(
    Method(
        name="wa",
        summary="logit distillation; after each task new classifier rows are scaled to the norm of old ones",
        settings={
            "network": {
                "head": "positive",
                "relu_head": True,
                "imprint": "none",
                "freeze_old": False,
                "after_task": "align_norms",
            },
            "loss": {  # (1 - lambda) cross-entropy + lambda distillation, lambda = old classes / classes seen
                "cross_entropy": {"growth": "new_over_seen"},
                "logit_distillation": {"growth": "old_over_seen", "temperature": 2.0},
            },
            "predict": {"headline": "classifier"},
        },
        like="lucir",
        # As that of cross-entropy
        additions={name: {"growth": "new_over_seen"} for name in ("csc", "ct", "balanced_cross_entropy")},
    )
)
