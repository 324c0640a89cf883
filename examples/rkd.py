"""Replay with relational distillation: the distances between the samples of a batch keep their proportions.

After "Relational Knowledge Distillation" (Park et al., CVPR 2019), its distance-wise loss.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cscct.losses import Term
from cscct.losses import register as register_loss
from cscct.methods import Method
from cscct.methods import register as register_method
from cscct.structs import Step


def relational_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Huber loss between all pairwise distances, each set divided by its own mean. student, teacher: (k, d).

    Zero, connected to the graph, when there is no pair.
    """
    if len(student) < 2:
        return student.sum() * 0.0
    here, there = torch.pdist(student), torch.pdist(teacher.detach())
    return F.smooth_l1_loss(here / here.mean().clamp(min=1e-8), there / there.mean().clamp(min=1e-8))


@register_loss
@dataclass(frozen=True)
class RelationalDistance(Term):
    """Distances between samples keep the proportions that the previous network gives them."""

    weight: float = 5.0

    name = "relational_distance"
    whole_batch = True  # over pairs, not a mean over samples: with several processes it needs the batch of all

    def value(self, step: Step) -> Tensor:
        assert step.teacher is not None  # the term reads the teacher, so it is left out of the first task
        return relational_distance(step.student.features, step.teacher.features)


register_method(
    Method(
        name="rkd",
        summary="cross-entropy and relational distillation of the features",
        settings={
            "network": {"head": "cosine", "imprint": "none", "freeze_old": False},
            "loss": {"cross_entropy": {}, "relational_distance": {"weight": 5.0}},
            "predict": {"headline": "classifier"},
        },
        like="lucir",
    )
)
