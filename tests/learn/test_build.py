"""From settings to parts: what depends on the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from torch import nn

from conftest import learner_for
from cscct.errors import UserError
from cscct.learn import build, device

FAULTS = """
import resource, sys, torch
from cscct.learn.build import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    torch.ones(16 << 20)
before = faults()
for _ in range(10):
    torch.ones(16 << 20)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept_for_the_next_step() -> None:
    def faults(how: str) -> int:
        return int(
            subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout
        )

    assert faults("kept") < faults("given back") / 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        pass

    monkeypatch.setattr(device.ctypes, "CDLL", lambda _: Other())
    device.keep_freed_memory()


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
    for prepare in (learner.prepare, learner.reader.prepare):
        norms = [module for module in prepare(learner.network).modules() if isinstance(module, nn.BatchNorm2d)]
        assert bool(norms) == (fold == "false")
