"""Runs in separate processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from conftest import run_quietly, without_timings
from cscct.errors import UserError
from cscct.runs.first_tasks import FirstTaskCache
from cscct.storage import locked
from cscct.studies import processes
from cscct.studies.datasets import DatasetCache
from cscct.studies.plan import PlannedRun
from cscct.studies.processes import ProcessExecutor
from cscct.studies.scheduler import Scheduler, StudyStatus
from cscct.studies.worker import WorkOrder
from planning import QUICK, small_plan


def pid_of(run: PlannedRun) -> int | None:
    """Return the process that works on a run, once it has written a checkpoint."""
    lock = run.folder.path / ".lock-holder"
    checkpoints = run.folder.path / "checkpoints"
    if not lock.is_file() or not checkpoints.is_dir() or not any(checkpoints.glob("*.json")):
        return None
    return next((int(part) for part in lock.read_text().split() if part.isdigit()), None)


def test_a_killed_process_is_restarted(tmp_path: Path) -> None:
    """While another run waits for its first task."""
    plan = small_plan(tmp_path / "many", "lucir", "lucir+cscct")
    killed: list[int] = []

    def watch(status: StudyStatus, changed: str | None) -> None:
        pid = None if killed else pid_of(plan[0])
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    executor = ProcessExecutor(2, DatasetCache(None, print), FirstTaskCache(tmp_path / "first"))
    status = Scheduler(plan, executor, watch, print, lambda: False).run()
    assert len(killed) == 1
    assert status.states == {"lucir-seed1": "finished", "lucir+cscct-seed1": "finished"}
    assert status.attempts == {"lucir-seed1": 2, "lucir+cscct-seed1": 1}
    alone = run_quietly(tmp_path / "alone", "lucir", *QUICK)
    assert without_timings(plan[0].folder.result()) == without_timings(alone)


class Started:
    """A process that is only recorded, with its environment, and ends when told."""

    all: ClassVar[list["Started"]] = []

    def __init__(self, command: list[str], env: dict[str, str] | None = None, **options: Any):
        self.gpu = None if env is None else env["CUDA_VISIBLE_DEVICES"]
        self.code: int | None = None
        self.kill = self.terminate = lambda: None
        self.all.append(self)

    def poll(self) -> int | None:
        return self.code


@pytest.mark.parametrize(("visible", "gpus"), [(None, ("0", "1")), ("3, 5", ("3", "5"))])
def test_runs_are_distributed_over_gpus(
    visible: str | None, gpus: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(processes.subprocess, "Popen", Started)
    monkeypatch.setattr(Started, "all", [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    executor = ProcessExecutor(3, DatasetCache(None, print), FirstTaskCache(tmp_path / "first"))

    def start(seed: int, *sets: str) -> str | None:
        (run,) = small_plan(tmp_path, "lucir", seeds=[seed], sets=sets)
        run.begin()
        executor.start(run)
        return Started.all[-1].gpu

    first, second = gpus
    assert [start(seed) for seed in (1, 2, 3)] == [first, second, first]
    Started.all[0].code = Started.all[2].code = 0  # the runs on the first one have ended
    assert [start(4), start(5, "runtime.device=cuda"), start(6)] == [first, first, second]
    assert start(7, "runtime.device=cpu") is None
    assert start(8, "runtime.devices=2") is None


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "cscct.studies.worker", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""


def is_held(folder: Path) -> bool:
    try:
        with locked(folder):
            return False
    except UserError:
        return True


def test_a_run_whose_parent_is_killed_stops_with_a_checkpoint(tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path, "lucir", sets=["train.epochs=10000", "checkpoint.minutes=60"])
    run.begin()
    order = WorkOrder(str(run.folder.path), str(tmp_path / "first")).to_json()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, order], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    while not (run.folder.path / "metrics.jsonl").is_file():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    patience = time.monotonic() + 120
    while is_held(run.folder.path) and time.monotonic() < patience:
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    assert run.state() == "unfinished"
    assert any((run.folder.path / "checkpoints").glob("*.json"))


def test_messages_are_not_written_through_a_link(tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path, "lucir")
    run.begin()
    (tmp_path / "outside").write_text("precious")
    (run.folder.path / "messages.txt").symlink_to(tmp_path / "outside")
    executor = ProcessExecutor(1, DatasetCache(None, print), FirstTaskCache(tmp_path / "first"))
    with pytest.raises(UserError, match="is a link"):
        executor.start(run)
    assert (tmp_path / "outside").read_text() == "precious"
