"""Memory of the losses: no temporaries of size samples × samples × dimensions, no copies of feature maps."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cscct.losses import controlled_transfer, cross_space_clustering, pod_spatial

K, D = 2048, 512


class Sizes(TorchDispatchMode):
    """Records the number of values of every new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}  # number of values by address of the storage, which views share
        self.tensors: list[torch.Tensor] = []  # keeps the storages alive, so that no address is reused

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in inputs:
                storage = tensor.untyped_storage()
                self.sizes[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
                self.tensors.append(tensor)
        return result


def test_memory_at_2048_samples_of_512_dimensions() -> None:
    """Counts all temporaries as if none were freed. A single tensor of size k × k × d would need 8,600 MB."""
    student = torch.randn(K, D, requires_grad=True)
    teacher, labels = torch.randn(K, D), torch.arange(K) % 100
    with Sizes() as recorded:
        loss = cross_space_clustering(student, teacher, labels) + controlled_transfer(student, teacher, labels >= 50)
        (gradient,) = torch.autograd.grad(loss, student)
    assert gradient.abs().sum() > 0
    assert max(recorded.sizes.values()) <= max(K * D, K * K / 4)  # features, or new samples times old ones
    assert K * D < sum(recorded.sizes.values()) < 200e6 / 4


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pod_spatial_makes_no_copy_of_the_maps(layout: torch.memory_format, dtype: torch.dtype) -> None:
    shape = (96, 16, 32, 32)
    student, teacher = (torch.randn(shape).to(dtype).contiguous(memory_format=layout) for _ in range(2))
    student.requires_grad_()
    with Sizes() as forward:
        loss = pod_spatial([student], [teacher])
    assert 0 < max(forward.sizes.values()) < student.numel() / 2
    with Sizes() as backward:
        (gradient,) = torch.autograd.grad(loss, student)
    large = [values for values in backward.sizes.values() if values > student.numel() / 2]
    assert large == [student.numel()]  # the gradient itself
    assert gradient.is_contiguous(memory_format=layout)


def test_chunks_give_the_same_result() -> None:
    """These maps are larger than a chunk. The loss equals the mean over single samples."""
    maps = torch.randn(2, 70, 16, 32, 32, dtype=torch.float64)
    student = maps[0].clone().requires_grad_()
    whole = pod_spatial([student], [maps[1]])
    single = torch.stack([pod_spatial([student[i : i + 1]], [maps[1, i : i + 1]]) for i in range(70)]).mean()
    torch.testing.assert_close(whole, single)
    gradients = [torch.autograd.grad(value, student)[0] for value in (whole, single)]
    torch.testing.assert_close(*gradients)
