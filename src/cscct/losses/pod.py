"""PODNet's pooled-outputs distillation of feature maps and final features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import connected_zero, promote
from .lucir import less_forget
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def pod_spatial(student_maps: Sequence[Tensor], teacher_maps: Sequence[Tensor]) -> Tensor:
    """POD-spatial loss of PODNet (Douillard et al., ECCV 2020), mean over samples, then over layers.

    Each map is squared and summed over its width and over its height. The two profiles of a sample are concatenated
    and scaled to unit length; the loss is the Euclidean distance between the student's and the teacher's.

    Args:
        student_maps: Feature maps of the network in training, one tensor of shape (k, c, h, w) per layer.
        teacher_maps: Maps of the same images from the previous network, with the same shapes. They receive no
            gradient.

    Returns:
        Unweighted scalar; 0 for an empty batch.

    Raises:
        ValueError: If there are no maps or their numbers or shapes disagree.

    Examples:
        >>> import torch
        >>> from cscct.losses import pod_spatial
        >>> maps = torch.tensor([[[[2.0, 0.0], [0.0, 2.0]]]])
        >>> pod_spatial([-3 * maps], [maps])  # signs and scale do not matter
        tensor(0.)
        >>> pod_spatial([maps], [torch.ones(1, 1, 1, 2)])
        Traceback (most recent call last):
        ...
        ValueError: maps must have the same shape (samples, channels, height, width), not (1, 1, 2, 2) and (1, 1, 1, 2).
    """
    if len(student_maps) != len(teacher_maps) or not student_maps:
        raise ValueError(
            "student and teacher must have the same number of maps, at least 1, "
            f"not {len(student_maps)} and {len(teacher_maps)}."
        )
    for student, teacher in zip(student_maps, teacher_maps, strict=True):
        if student.ndim != 4 or student.shape != teacher.shape:
            raise ValueError(
                "maps must have the same shape (samples, channels, height, width), "
                f"not {tuple(student.shape)} and {tuple(teacher.shape)}."
            )
    if len(student_maps[0]) == 0:
        return connected_zero(*student_maps)
    layers = [_distance(student, teacher.detach()) for student, teacher in zip(student_maps, teacher_maps, strict=True)]
    return torch.stack(layers).mean()


def _distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean distance between the profiles of two maps."""
    if student.dtype != teacher.dtype:  # equal dtypes need no copy of the maps
        student, teacher = promote(student, teacher)
    # vector_norm has gradient 0 at equal maps, where the gradient of a square root is NaN.
    return torch.linalg.vector_norm(_profiles(teacher) - _profiles(student), dim=1).mean()


def _profiles(maps: Tensor) -> Tensor:
    """Return the unit vectors of sums of squares along both axes, shape (k, c (h + w))."""
    from .square_sums import SquareSums

    rows, columns = SquareSums.apply(maps)
    return F.normalize(torch.cat([rows.flatten(1), columns.flatten(1)], dim=1), dim=1, eps=1e-12)


def pod_flat(student: Tensor, teacher: Tensor) -> Tensor:
    """POD-flat loss of PODNet (Douillard et al., ECCV 2020): `less_forget` on the pooled features.

    Args:
        student: Features of the network in training, shape (k, d).
        teacher: Features of the same images from the previous network, shape (k, d). They receive no gradient.

    Returns:
        Unweighted scalar in [0, 2]; 0 for an empty batch.

    Raises:
        ValueError: If shapes disagree.

    Examples:
        >>> import torch
        >>> from cscct.losses import pod_flat
        >>> pod_flat(torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0]]))
        tensor(2.)
    """
    return less_forget(student, teacher)


@register
@dataclass(frozen=True)
class PODSpatial(Term):
    """PODNet: feature maps keep their sums along each axis."""

    name = "pod_spatial"
    compares_features = True
    with_mixup = "same"

    def value(self, step: Step) -> Tensor:
        return pod_spatial(step.student.maps, teacher_of(step).maps)


@register
@dataclass(frozen=True)
class PODFlat(Term):
    """PODNet: features keep their direction."""

    name = "pod_flat"
    compares_features = True
    with_mixup = "same"

    def value(self, step: Step) -> Tensor:
        return pod_flat(step.student.features, teacher_of(step).features)
