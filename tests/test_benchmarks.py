import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cscct.config import resolve
from cscct.losses import WeightedSum
from cscct.structs import Batch, Output, Step, Task

FOLDER = Path(__file__).parent.parent / "benchmarks"


def test_bench_runs_and_reports_every_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from bench import GOALS

    file = tmp_path / "bench.json"
    command = [sys.executable, str(FOLDER / "bench.py"), "--tiny", "--threads=1", f"--json={file}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    # Seconds of others mean nothing beside tiny ones, and tiny batches have other names.
    expected = [name for name in GOALS if not any(part in name for part in ("ours", "k=2048", "batch 1024", "tuning"))]
    assert len(expected) == 32
    for name in [*expected, "CSC+CT at k=32, d=512, MB"]:
        assert name in results["ratios"]
        assert name in done.stdout
    assert all(machine["threads"] == 1 for machine in results["machines"].values())
    for task in results["parts"]["second-task"].values():
        assert all(task["package"][part] > 0 for part in ("data", "student", "teacher", "losses", "optimiser"))
        assert all(task["package"][part] > 0 for part in ("imprinting", "herding", "evaluation", "checkpoint"))
        assert {"training", "imprinting", "herding", "class means", "evaluation"} <= task["floor"].keys()


def test_page_is_current() -> None:
    """docs/performance.md is generated from benchmarks/results.json."""
    command = [sys.executable, str(FOLDER / "page.py"), "--check", str(FOLDER / "results.json")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_textbook_loss_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from textbook import total_loss

    torch.manual_seed(0)
    task, labels = Task(1, 50, 5), torch.tensor([0, 3, 3, 49, 50, 52, 52, 54])
    scale = torch.tensor(1.7)
    student = Output((), torch.randn(8, 16, requires_grad=True), torch.rand(8, 55), scale)
    teacher = Output((), torch.randn(8, 16), torch.rand(8, 50), scale)
    terms = resolve("lucir+cscct", "cifar100").terms
    ours, _ = WeightedSum(terms, task)(Step(Batch(torch.empty(8, 0), labels, labels >= 50), student, teacher, task))
    theirs = total_loss(student, teacher, labels, task)
    torch.testing.assert_close(theirs, ours)
    gradients = [torch.autograd.grad(loss, student.features)[0] for loss in (theirs, ours)]
    torch.testing.assert_close(*gradients)
