"""IL2M, class incremental learning with dual memory (Belouadah and Popescu, ICCV 2019).

The network is fine-tuned on new images and exemplars. If it predicts a class of the newest task N, the probability of
an old class i, which task P introduced, is multiplied by μ_P(i) / μ_N(i) · μ(M_N) / μ(M_P): μ_T(i) is the mean
probability of class i for its images after task T, and μ(M_T) the mean of the largest probability for the images of T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from .base import Method, register
from .extension import Extension, TaskContext, register_extension
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")

BATCH_SIZE = 128
SMALLEST = 1e-6  # lower bound of a mean probability, which is a divisor


def statistics(context: TaskContext, pool: str) -> tuple[Tensor, Tensor]:
    """Return the mean probability of each class for its own images (classes,), and the mean largest probability."""
    network, classes = context.network.eval(), context.task.n_seen
    batches = list(context.batches(pool, BATCH_SIZE))
    with torch.no_grad():
        probabilities = torch.cat([network(batch.images).logits.softmax(dim=1) for batch in batches])
    labels = torch.cat([batch.labels for batch in batches])
    own = probabilities.gather(1, labels[:, None])[:, 0]
    sums = torch.zeros(classes, device=context.device).index_add_(0, labels, own)
    return sums / labels.bincount(minlength=classes).clamp(min=1), probabilities.amax(dim=1).mean()


@register_extension
@dataclass(frozen=True)
class IL2M(Extension):
    """Mean probabilities of each class, and of the network, when the class was learned."""

    name = "il2m"

    def end_task(self, context: TaskContext) -> None:
        """Store the statistics of the new classes, and set the rectification of the old ones in the head."""
        task, head = context.task, context.network.head
        means, confidence = statistics(context, "new")
        earlier = [self.state[key] for key in ("mean", "confidence")] if not task.is_first else [means[:0], means[:0]]
        self.state["mean"] = torch.cat([earlier[0], means[task.n_old :]])
        self.state["confidence"] = torch.cat([earlier[1], confidence.expand(task.n_new)])
        if not task.is_first:
            current = statistics(context, "memory")[0][: task.n_old].clamp(min=SMALLEST)
            head.rectify(earlier[0] / current * confidence / earlier[1])  # type: ignore[operator]


IL2M_METHOD = register(
    Method(
        name="il2m",
        summary="replay; predictions of old classes are rectified by the scores they had when they were learned",
        family="bias correction",
        settings={
            "network": {**LINEAR_NETWORK, "head": "il2m"},
            "loss": {"cross_entropy": {}},
            "extension": {"il2m": {}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
