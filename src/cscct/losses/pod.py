"""PODNet's pooled-outputs distillation, over the maps of all stages and over the final feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .common import connected_zero, raised
from .lucir import less_forget


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
    rows, columns = _SquareSums.apply(maps)
    return F.normalize(torch.cat([rows.flatten(1), columns.flatten(1)], dim=1), dim=1, eps=1e-12)


class _SquareSums(torch.autograd.Function):
    """Sums of squares over width, (k, h, c), and over height, (k, w, c): with channels last, as networks here have
    them in memory. A few samples at a time: no copy of the maps is made, only the gradient has their size."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(maps)
        k, channels, height, width = maps.shape
        dtype = raised(maps[:0]).dtype
        rows = maps.new_empty(k, height, channels, dtype=dtype)
        columns = maps.new_empty(k, width, channels, dtype=dtype)
        for piece in _pieces(maps):
            squares = raised(maps[piece]).permute(0, 2, 3, 1).square()
            torch.sum(squares, dim=2, out=rows[piece])
            torch.sum(squares, dim=1, out=columns[piece])
        return rows, columns

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, over_rows: Tensor, over_columns: Tensor) -> Tensor:
        (maps,) = ctx.saved_tensors
        gradient = torch.empty_like(maps)
        over_rows, over_columns = 2 * over_rows, 2 * over_columns
        for piece in _pieces(maps):
            both = over_rows[piece].unsqueeze(2) + over_columns[piece].unsqueeze(1)
            torch.mul(both.permute(0, 3, 1, 2), maps[piece], out=gradient[piece])
        return gradient


def _pieces(maps: Tensor, size: int = 2 << 20) -> list[slice]:
    """Of about so many bytes on a CPU, so that they stay in its cache. A GPU would rather have one large piece."""
    if maps.device.type != "cpu":
        return [slice(0, len(maps))]
    sample = max(1, raised(maps[:0]).element_size() * maps[:1].numel())
    each = max(1, size // sample)
    return [slice(start, start + each) for start in range(0, len(maps), each)]


def pod_flat(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of 1 − cos between the pooled features: LUCIR's less-forget by another name."""
    return less_forget(student, teacher)
