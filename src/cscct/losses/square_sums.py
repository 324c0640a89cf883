"""Sums of squared feature maps along each axis, without a copy of the maps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .common import at_least_float32


class SquareSums(torch.autograd.Function):
    """Sums of squares over width, (k, h, c), and over height, (k, w, c), of maps (k, c, h, w).

    The channels come last because the networks store their maps in that order. The maps are processed a few samples
    at a time: no copy of them is made, and only the gradient has their size.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(maps)
        k, channels, height, width = maps.shape
        dtype = at_least_float32(maps[:0]).dtype
        rows = maps.new_empty(k, height, channels, dtype=dtype)
        columns = maps.new_empty(k, width, channels, dtype=dtype)
        for chunk in _chunks(maps):
            squares = at_least_float32(maps[chunk]).permute(0, 2, 3, 1).square()
            torch.sum(squares, dim=2, out=rows[chunk])
            torch.sum(squares, dim=1, out=columns[chunk])
        return rows, columns

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_rows: Tensor, grad_columns: Tensor) -> Tensor:
        (maps,) = ctx.saved_tensors
        gradient = torch.empty_like(maps)
        grad_rows, grad_columns = 2 * grad_rows, 2 * grad_columns
        for chunk in _chunks(maps):
            both = grad_rows[chunk].unsqueeze(2) + grad_columns[chunk].unsqueeze(1)
            torch.mul(both.permute(0, 3, 1, 2), maps[chunk], out=gradient[chunk])
        return gradient


def _chunks(maps: Tensor, size: int = 2 << 20) -> list[slice]:
    """Split the samples into chunks of about `size` bytes, which fit the cache of a CPU.

    Other devices process all samples at once.
    """
    if maps.device.type != "cpu":
        return [slice(0, len(maps))]
    sample = max(1, at_least_float32(maps[:0]).element_size() * maps[:1].numel())
    count = max(1, size // sample)
    return [slice(start, start + count) for start in range(0, len(maps), count)]
