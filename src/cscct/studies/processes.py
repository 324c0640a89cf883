"""Runs as processes of this machine, each a `cscct run`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from ..runs.first_tasks import FirstTaskCache
from .scheduler import Job, Outcome, RunHandle, begin

MESSAGES = "messages.txt"


class ProcessExecutor:
    """Runs as processes of this machine, each a `cscct run`.

    arguments: further words for each of them (data folder, plugins).
    """

    def __init__(self, slots: int, first_tasks: FirstTaskCache, arguments: Sequence[str] = ()):
        self.slots, self.first_tasks, self.arguments = slots, first_tasks, tuple(arguments)

    def start(self, job: Job) -> RunHandle:
        begin(job)
        path = job.folder.path
        words = ["run", "--config", str(path / "config.yaml"), "--out", str(path), "--quiet"]
        words += ["--first-tasks", str(self.first_tasks.folder), *self.arguments]
        with (path / MESSAGES).open("w") as messages:  # not a pipe: nobody reads it while the run works
            command = [sys.executable, "-m", "cscct", *words]
            return _Process(job, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages, text=True))


class _Process:
    def __init__(self, job: Job, process: subprocess.Popen[str]):
        self.job, self.process = job, process
        self.kill, self.ask_to_stop = process.kill, process.terminate

    def ended(self) -> Outcome | None:
        code = self.process.poll()
        if code is None:
            return None
        if code == 0:
            return Outcome("finished")
        lines = (self.job.folder.path / MESSAGES).read_text().strip().splitlines()
        words = lines[-1].removeprefix("error: ") if lines else ""
        if code < 0 or not words.strip() or not lines[-1].startswith("error: "):
            return Outcome(
                "died", f"it was ended by signal {-code}." if code < 0 else words or f"it ended with code {code}."
            )
        return Outcome("failed", words)

    def wait(self) -> None:
        self.process.wait()
