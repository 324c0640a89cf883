"""Construction of a learner: parts that depend on the machine."""

import ctypes
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from conftest import learner_for, settings_for
from cscct.errors import UserError
from cscct.learn import build, device

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD and so on in glibc's malloc.h
GB = 1 << 30


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ((), {MMAP_THRESHOLD: GB, TRIM_THRESHOLD: 2 * GB - 1}),
        ((MMAP_THRESHOLD,), {MMAP_MAX: 0, TRIM_THRESHOLD: 2 * GB - 1}),  # as older ones do
    ],
)
def test_freed_memory_is_kept_for_the_next_step(
    refused: tuple[int, ...], expected: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are large blocks mapped one by one, nor is the end of the heap given back."""
    options: dict[int, int] = {}

    class Library:
        def mallopt(self, option: int, value: int) -> int:
            if option in refused:
                return 0
            options[option] = value
            return 1

    monkeypatch.setattr(device.ctypes, "CDLL", lambda _: Library())
    device.keep_freed_memory()
    assert options == expected


# What glibc says of itself: how many blocks it has mapped one by one, and how much its heap holds.
KEPT = """
import ctypes
from cscct.learn.device import keep_freed_memory

libc = ctypes.CDLL(None)

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd u f fordblks t k".split()]

libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Info, ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc.argtypes = [ctypes.c_size_t]

def block():
    before = libc.mallinfo2()
    pointer = libc.malloc(64 << 20)
    during = libc.mallinfo2()
    libc.free(pointer)
    return during.hblks - before.hblks, libc.mallinfo2().arena - before.arena >= 32 << 20

default = block()
keep_freed_memory()
assert (default, block()) == ((1, False), (0, True)), default
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a C library without mallinfo2")
def test_malloc_options_in_glibc() -> None:
    env = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    done = subprocess.run([sys.executable, "-c", KEPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_every_learner_on_a_cpu_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(build, "keep_freed_memory", lambda: called.append(True))
    learner_for("lucir")
    assert called == [True]


def test_without_a_compiler_compiling_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    learner_for("lucir")  # nobody asked
    for what in ("frozen", "all"):
        with pytest.raises(UserError, match=r"needs a C\+\+ compiler, and no-such-compiler was not found"):
            learner_for("lucir", f"runtime.compile={what}")


@pytest.mark.parametrize("fold", ["true", "false"])
def test_folding_is_a_setting(fold: str) -> None:
    learner = learner_for("lucir", f"runtime.fold={fold}")
    for prepare in (learner.prepare, learner.evaluator.prepare):
        norms = [module for module in prepare(learner.network).modules() if isinstance(module, nn.BatchNorm2d)]
        assert bool(norms) == (fold == "false")


def test_convolutions_are_selected_by_measurement_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    learner = learner_for("finetune", "data.train_per_class=2", "network.depth=8")
    settings = settings_for("finetune", "digits", "runtime.device=cuda")
    assert not torch.backends.cudnn.benchmark  # on a CPU

    class Reached(Exception): ...

    def stop(*_: object) -> None:
        raise Reached

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(build, "check_optimizer", stop)  # what follows needs a GPU
    with pytest.raises(Reached):
        build.learner_with(learner.network, settings, learner.stream)
    assert torch.backends.cudnn.benchmark
