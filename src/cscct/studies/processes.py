"""Where the runs of a study are carried out on this machine: in this process, or in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import Settings
from ..learn.device import choose_device
from ..runs.files import open_own
from ..runs.first_tasks import FirstTaskCache
from ..runs.folder import MESSAGES
from ..runs.listeners import Listener
from .datasets import DatasetCache
from .plan import PlannedRun
from .scheduler import RunHandle
from .worker import EXIT_CODES, Outcome, WorkOrder, carry_out_run


class InProcessExecutor:
    """One run after another in this process: `start` returns when the run has ended."""

    slots = 1

    def __init__(
        self,
        datasets: DatasetCache,
        first_tasks: FirstTaskCache,
        listener: Listener,
        stop: Callable[[], bool],
    ):
        self.datasets, self.first_tasks, self.listener, self.stop = datasets, first_tasks, listener, stop

    def check(self, settings: Settings) -> None:
        choose_device(settings.runtime.device)
        self.datasets.of(settings)

    def start(self, run: PlannedRun) -> RunHandle:
        return _Ended(carry_out_run(run.folder, self.datasets, self.first_tasks, self.listener, self.stop))


class _Ended:
    """A run that has ended already."""

    def __init__(self, outcome: Outcome):
        self.outcome = outcome

    def ended(self) -> Outcome:
        return self.outcome

    def ask_to_stop(self) -> None: ...

    def wait(self) -> None: ...

    def kill(self) -> None: ...


class ProcessExecutor:
    """Up to `slots` runs at a time, each in a process of its own."""

    def __init__(self, slots: int, datasets: DatasetCache, first_tasks: FirstTaskCache, plugins: Sequence[Path] = ()):
        self.slots, self.datasets, self.first_tasks = slots, datasets, first_tasks
        self.plugins = tuple(map(str, plugins))

    def check(self, settings: Settings) -> None:
        choose_device(settings.runtime.device)
        self.datasets.check(settings)

    def start(self, run: PlannedRun) -> RunHandle:
        path, data = run.folder.path, self.datasets.data_dir
        order = WorkOrder(str(path), str(self.first_tasks.folder), str(data) if data else None, self.plugins)
        command = [sys.executable, "-m", "cscct.studies.worker", order.to_json()]
        # Not a pipe: nobody reads it while the run works.
        with open_own(path / MESSAGES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as messages:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages, text=True
            )
        return _Process(path / MESSAGES, process)


class _Process:
    def __init__(self, messages: Path, process: subprocess.Popen[str]):
        self.messages, self.process = messages, process
        self.kill, self.ask_to_stop = process.kill, process.terminate

    def ended(self) -> Outcome | None:
        code = self.process.poll()
        if code is None:
            return None
        lines = self.messages.read_text().strip().splitlines()
        warnings = tuple(line.removeprefix("warning: ") for line in lines if line.startswith("warning: "))
        how = next((how for how, known in EXIT_CODES.items() if known == code), "died")
        words = lines[-1] if lines else ""
        if how == "finished":
            return Outcome("finished", "", warnings)
        if how != "died" and words.startswith("error: "):
            return Outcome(how, words.removeprefix("error: "), warnings)  # type: ignore[arg-type]
        died = f"it was ended by signal {-code}." if code < 0 else words or f"it ended with code {code}."
        return Outcome("died", died, warnings)

    def wait(self) -> None:
        self.process.wait()
