"""The losses over a batch stay small when it is large: no temporaries of the size samples × samples × dimensions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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

def peak():  # not getrusage: that also counts what the process was before it became this program
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

torch.set_num_threads(1)
run(64)  # what torch sets up at first use does not count
before = peak()
run({K})
print((peak() - before) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
def test_memory_at_2048_samples_of_512_dimensions() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    megabytes = float(done.stdout)
    assert 4 < megabytes < 200  # the features alone are 4; one k × k × d would be 8,600
