"""From settings to parts: what depends on the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from cscct.errors import UserError
from cscct.learn import build

FAULTS = """
import resource, sys, torch
from cscct.learn.build import _keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    _keep_freed_memory()
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

    monkeypatch.setattr(build.ctypes, "CDLL", lambda _: Other())
    build._keep_freed_memory()


def test_without_a_compiler_compiling_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    build._need_a_compiler("none")  # nobody asked
    for what in ("frozen", "all"):
        with pytest.raises(UserError, match=r"needs a C\+\+ compiler, and no-such-compiler was not found"):
            build._need_a_compiler(what)
