"""AFC, adaptive feature consolidation (Kang et al., CVPR 2022), on the network, head and stages of PODNet.

The importance of channel c of a feature map Z is E ‖∂L / ∂Z_c‖² with the classification loss L, after each task, scaled
to a mean of 1 over the channels. The loss is the mean over samples and channels of importance_c ‖S_c − T_c‖, with the
squares S and T of the student's and the teacher's map, scaled to unit length for each sample and channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..losses import Term, nca
from ..losses import register as register_term
from ..losses.common import connected_zero, promote
from ..losses.terms import teacher_of
from ..structs import Step
from .base import Method, register
from .distillation import PODNET
from .extension import Extension, TaskContext, register_extension

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def weighted_map_distance(student: Tensor, teacher: Tensor, importance: Tensor) -> Tensor:
    """Return the mean over samples and channels of the weighted distance between two maps (k, c, h, w)."""
    if not len(student):
        return connected_zero(student)
    squares = [F.normalize(maps.flatten(2) ** 2, dim=2) for maps in promote(student, teacher.detach())]
    distances = torch.linalg.vector_norm(squares[0] - squares[1], dim=2)  # of gradient 0 at equal maps
    return (distances * importance.to(distances.dtype)).mean()


@register_extension
@dataclass(frozen=True)
class ChannelImportance(Extension):
    """Importance of each channel of the feature maps for the classification loss after the previous task."""

    name = "channel_importance"

    def end_task(self, context: TaskContext) -> None:
        """Replace the importances: squared gradients of single images, which do not interact in evaluation mode."""
        network = context.network.eval()
        network.backbone.requires_grad_(True)
        sums: list[Tensor] = []
        for batch in context.batches("all", 128):
            output = network(batch.images)
            loss = nca(output.scores, batch.labels, output.scale) * len(batch.labels)
            squares = [gradient.pow(2).sum(dim=(0, 2, 3)) for gradient in torch.autograd.grad(loss, output.maps)]
            sums = [a + b for a, b in zip(sums, squares, strict=True)] if sums else squares
        for layer, total in enumerate(sums):
            self.state[f"map{layer}"] = total / total.mean().clamp(min=torch.finfo(total.dtype).tiny)


@register_term
@dataclass(frozen=True)
class ChannelDistillation(Term):
    """AFC: feature maps keep their squares in each channel, weighted by the importance of the channel."""

    name = "channel_distillation"
    compares_features = True
    reads_extension = True
    with_mixup = "same"

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step, the mean over the feature maps."""
        pairs, state = zip(step.student.maps, teacher_of(step).maps, strict=True), step.extension.state
        return torch.stack([weighted_map_distance(*pair, state[f"map{i}"]) for i, pair in enumerate(pairs)]).mean()


_LOSS = {"nca": {}, "channel_distillation": {"weight": 4.0, "weight_scaling": "sqrt_seen_over_new"}}
_SETTINGS = {**PODNET.settings, "loss": _LOSS, "extension": {"channel_importance": {}}}
_SUMMARY = "PODNet with distillation of feature maps, weighted by the importance of each channel"
AFC = register(Method("afc", _SUMMARY, _SETTINGS, "podnet", PODNET.addon_settings, family="distillation"))
