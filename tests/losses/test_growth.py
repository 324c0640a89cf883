"""The losses stay small when what they read is large: no temporaries of the size samples × samples × dimensions, no
copies of maps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cscct.losses import pod_spatial

K, D = 2048, 512
SCRIPT = f"""
import torch
from cscct.losses import controlled_transfer, cross_space_clustering

def run(k):
    student = torch.randn(k, {D}, requires_grad=True)
    teacher, labels = torch.randn(k, {D}), torch.arange(k) % 100
    loss = cross_space_clustering(student, teacher, labels) + controlled_transfer(student, teacher, labels >= 50)
    loss.backward()
    assert student.grad.abs().sum() > 0

def kilobytes(name):  # not getrusage: that also counts what the process was before it became this program
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

torch.set_num_threads(1)
run(64)  # what torch sets up at first use does not count
before = kilobytes("VmRSS")
run({K})
print((kilobytes("VmHWM") - before) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
def test_memory_at_2048_samples_of_512_dimensions() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    megabytes = float(done.stdout)
    assert 4 < megabytes < 200  # the features alone are 4; one k × k × d would be 8,600


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
