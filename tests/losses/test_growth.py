"""The losses stay small when what they read is large: no temporaries of the size samples × samples × dimensions, no
copies of maps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cscct.losses import controlled_transfer, cross_space_clustering, pod_spatial

K, D = 2048, 512


class Sizes(TorchDispatchMode):
    """Notes how many values every new tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, int] = {}  # storage -> values; views share one
        self.kept: list[torch.Tensor] = []  # so that no storage's address is given twice

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {one.untyped_storage().data_ptr() for one in tree_leaves(args) if isinstance(one, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in before:
                self.found[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes() // one.element_size()
                self.kept.append(one)
        return result


def test_memory_at_2048_samples_of_512_dimensions() -> None:
    """All that is ever made, as if nothing were freed before the end; one k × k × d alone would be 8,600 MB."""
    student = torch.randn(K, D, requires_grad=True)
    teacher, labels = torch.randn(K, D), torch.arange(K) % 100
    with Sizes() as made:
        loss = cross_space_clustering(student, teacher, labels) + controlled_transfer(student, teacher, labels >= 50)
        (gradient,) = torch.autograd.grad(loss, student)
    assert gradient.abs().sum() > 0
    assert max(made.found.values()) <= max(K * D, K * K / 4)  # features, or new samples times old ones
    assert K * D < sum(made.found.values()) < 200e6 / 4


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pod_spatial_makes_no_copy_of_the_maps(layout: torch.memory_format, dtype: torch.dtype) -> None:
    shape = (96, 16, 32, 32)
    student, teacher = (torch.randn(shape).to(dtype).contiguous(memory_format=layout) for _ in range(2))
    student.requires_grad_()
    with Sizes() as forward:
        loss = pod_spatial([student], [teacher])
    assert 0 < max(forward.found.values()) < student.numel() / 2
    with Sizes() as backward:
        (gradient,) = torch.autograd.grad(loss, student)
    large = [values for values in backward.found.values() if values > student.numel() / 2]
    assert large == [student.numel()]  # the gradient itself
    assert gradient.is_contiguous(memory_format=layout)


def test_pieces_give_what_the_whole_gives() -> None:
    """The maps above are larger than a piece: the same as sample by sample."""
    maps = torch.randn(2, 70, 16, 32, 32, dtype=torch.float64)
    student = maps[0].clone().requires_grad_()
    whole = pod_spatial([student], [maps[1]])
    each = torch.stack([pod_spatial([student[i : i + 1]], [maps[1, i : i + 1]]) for i in range(70)]).mean()
    torch.testing.assert_close(whole, each)
    gradients = [torch.autograd.grad(value, student)[0] for value in (whole, each)]
    torch.testing.assert_close(*gradients)
