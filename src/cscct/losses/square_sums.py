"""Sums of squared maps along each axis, without a copy of the maps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .common import at_least_float32


class SquareSums(torch.autograd.Function):
    """Sums of squares over width, (k, h, c), and over height, (k, w, c): with channels last, as networks here have
    them in memory. A few samples at a time: no copy of the maps is made, only the gradient has their size."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(maps)
        k, channels, height, width = maps.shape
        dtype = at_least_float32(maps[:0]).dtype
        rows = maps.new_empty(k, height, channels, dtype=dtype)
        columns = maps.new_empty(k, width, channels, dtype=dtype)
        for piece in _pieces(maps):
            squares = at_least_float32(maps[piece]).permute(0, 2, 3, 1).square()
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
    sample = max(1, at_least_float32(maps[:0]).element_size() * maps[:1].numel())
    each = max(1, size // sample)
    return [slice(start, start + each) for start in range(0, len(maps), each)]
