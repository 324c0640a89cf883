"""A second Ctrl-C ends a command and all of its processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEAF = """
import os, signal, time
from cscct.cli.stopping import stop_on_request

with stop_on_request(print) as stop:
    os.kill(os.getpid(), signal.{first})
    assert stop()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        time.sleep(1000)  # ignores the interrupt
"""

PLUGIN = """
import os, signal, sys, threading, time
from pathlib import Path
from cscct.runs.checkpointing import CheckpointWriter

marks, role = Path(__file__).parent / "marks", {role}

def step(self, *arguments):
    (marks / str(os.getpid())).touch()
    time.sleep(1000)  # ignores requests to stop

def interrupt():
    while len(list(marks.iterdir())) < {count}:
        time.sleep(0.05)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)

if role == "leader":
    threading.Thread(target=interrupt, daemon=True).start()
else:
    CheckpointWriter.step = step
"""
SMALL = ("train.epochs=1", "data.train_per_class=10", "checkpoint.minutes=0", "runtime.threads=1")


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
def test_a_process_that_ignores_the_interrupt_is_ended(first: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEAF.format(first=first)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 130
    assert "Stopping after this step" in done.stdout
    assert "interrupted" in done.stdout
    assert done.stderr.startswith("Stopped immediately.")


def stopped_twice(folder: Path, role: str, count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Interrupt a command twice when `count` of its processes hang, and check that they end with it."""
    (folder / "marks").mkdir()
    (folder / "hang.py").write_text(PLUGIN.format(role=role, count=count))
    command = [sys.executable, "-m", "cscct", *arguments, "--plugin", "hang.py"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        _, stderr = process.communicate(timeout=240)
    left = {int(mark.name) for mark in (folder / "marks").iterdir()}
    assert len(left) >= count
    until = time.monotonic() + 120
    while left and time.monotonic() < until:
        left = {pid for pid in left if _is_running(pid)}
        time.sleep(0.1)
    assert not left
    return subprocess.CompletedProcess(command, process.returncode, "", stderr)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path(f"/proc/{pid}").exists() else True


def test_runs_in_separate_processes_end_with_the_command(tmp_path: Path) -> None:
    role = '"worker" if sys.argv[0].endswith("worker.py") else "leader"'
    sets = [argument for text in SMALL for argument in ("--set", text)]
    done = stopped_twice(
        tmp_path, role, 2, "compare", "lucir", "podnet", "--seeds", "1", "--jobs", "2", "--out", "c", *sets
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert "Stopped immediately" in done.stderr


def test_processes_that_share_a_run_end_with_it(tmp_path: Path) -> None:
    """The leader waits for the follower in code that handles no signals."""
    pytest.importorskip("lightning_fabric")
    sets = [argument for text in SMALL for argument in ("--set", text)]
    role = '"leader" if os.environ.get("LOCAL_RANK", "0") == "0" else "follower"'
    done = stopped_twice(tmp_path, role, 1, "run", "replay", "digits", "--devices", "2", "--out", "r", *sets)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert done.stderr.count("Stopped immediately") == 1
