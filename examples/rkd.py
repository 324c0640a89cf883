"""Replay with relational distillation: the pairwise distances within a batch keep their proportions.

Distance-wise loss of "Relational Knowledge Distillation" (Park et al., CVPR 2019).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cscct import register_loss, register_method
from cscct.losses import Term
from cscct.methods import Method
from cscct.structs import Step


def relational_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the Huber loss between all pairwise distances, each set divided by its mean.

    Args:
        student: Features of the network in training, (k, d).
        teacher: Features of the previous network, (k, d). No gradient reaches it.

    Returns:
        Scalar; zero, connected to the graph, for fewer than two samples.
    """
    if len(student) < 2:
        return student.sum() * 0.0
    current, previous = torch.pdist(student), torch.pdist(teacher.detach())
    return F.smooth_l1_loss(current / current.mean().clamp(min=1e-8), previous / previous.mean().clamp(min=1e-8))


@register_loss
@dataclass(frozen=True)
class RelationalDistance(Term):
    """Distances between samples keep the proportions that the previous network assigns."""

    weight: float = 5.0

    name = "relational_distance"
    needs_full_batch = True  # depends on pairs of samples, so several processes must gather the batch

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a training step."""
        assert step.teacher is not None  # terms that read the teacher are inactive in the first task
        return relational_distance(step.student.features, step.teacher.features)


register_method(
    Method(
        name="rkd",
        summary="cross-entropy and relational distillation of the features",
        settings={
            "network": {"head": "cosine", "imprint": "none", "freeze_old": False},
            "loss": {"cross_entropy": {}, "relational_distance": {"weight": 5.0}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
