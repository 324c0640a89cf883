"""PODNet's pooled-outputs distillation, over the maps of all stages and over the final feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step
from .common import connected_zero
from .lucir import less_forget
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


def pod_spatial(student_maps: Sequence[Tensor], teacher_maps: Sequence[Tensor]) -> Tensor:
    """Euclidean distance between pooled squared maps, mean over the batch, then over the layers.

    Each map (k, c, h, w) is squared, summed over its width and over its height, the two profiles joined into one
    vector per sample and normalised.
    """
    if len(student_maps) != len(teacher_maps) or not student_maps:
        raise ValueError(
            f"student and teacher must give the same maps, at least one: {len(student_maps)} and {len(teacher_maps)}."
        )
    for student, teacher in zip(student_maps, teacher_maps, strict=True):
        if student.ndim != 4 or student.shape != teacher.shape:
            raise ValueError(
                "maps must be two tensors of one shape (samples, channels, height, width), "
                f"not {tuple(student.shape)} and {tuple(teacher.shape)}."
            )
    if len(student_maps[0]) == 0:
        return connected_zero(*student_maps)
    layers = [
        # vector_norm and not a hand-written root: its gradient at equal maps is 0, not NaN.
        torch.linalg.vector_norm(_profiles(teacher.detach()) - _profiles(student), dim=1).mean()
        for student, teacher in zip(student_maps, teacher_maps, strict=True)
    ]
    return torch.stack(layers).mean()


def _profiles(maps: Tensor) -> Tensor:
    from .square_sums import SquareSums

    rows, columns = SquareSums.apply(maps)
    return F.normalize(torch.cat([rows.flatten(1), columns.flatten(1)], dim=1), dim=1, eps=1e-12)


def pod_flat(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of 1 − cos between the pooled features: LUCIR's less-forget by another name."""
    return less_forget(student, teacher)


@register
@dataclass(frozen=True)
class PODSpatial(Term):
    """PODNet: maps keep their sums along each axis."""

    name = "pod_spatial"

    def value(self, step: Step) -> Tensor:
        return pod_spatial(step.student.maps, teacher_of(step).maps)


@register
@dataclass(frozen=True)
class PODFlat(Term):
    """PODNet: features keep their direction."""

    name = "pod_flat"

    def value(self, step: Step) -> Tensor:
        return pod_flat(step.student.features, teacher_of(step).features)
