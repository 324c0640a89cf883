"""Executors on this machine: in this process, or in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import Settings
from ..learn.device import choose_device, visible_gpus
from ..runs.first_tasks import FirstTaskCache
from ..runs.folder import MESSAGES
from ..runs.listeners import Listener
from ..storage import open_regular
from .datasets import DatasetCache
from .plan import PlannedRun
from .scheduler import RunHandle
from .worker import EXIT_CODES, RunOutcome, WorkOrder, execute_run


class InProcessExecutor:
    """Executes runs one after another in this process. `start` returns when the run has ended."""

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
        self.datasets.complete(settings)

    def start(self, run: PlannedRun) -> RunHandle:
        return _EndedRun(execute_run(run.folder, self.datasets, self.first_tasks, self.listener, self.stop))


class _EndedRun:
    """Handle of a run that has ended."""

    def __init__(self, outcome: RunOutcome):
        self._outcome = outcome

    def outcome(self) -> RunOutcome:
        return self._outcome

    def request_stop(self) -> None: ...

    def wait(self) -> None: ...

    def kill(self) -> None: ...


class ProcessExecutor:
    """Executes up to `slots` runs at a time, each in a separate process.

    On a machine with several GPUs, each run sees the GPU on which the fewest runs are executed. Runs that divide their
    batches among several GPUs see all of them.
    """

    def __init__(self, slots: int, datasets: DatasetCache, first_tasks: FirstTaskCache, plugins: Sequence[Path] = ()):
        self.slots, self.datasets, self.first_tasks = slots, datasets, first_tasks
        self.plugins = tuple(map(str, plugins))
        self.on_gpu: list[tuple[str, subprocess.Popen[str]]] = []

    def check(self, settings: Settings) -> None:
        choose_device(settings.runtime.device)
        self.datasets.check(settings)

    def start(self, run: PlannedRun) -> RunHandle:
        path, data = run.folder.path, self.datasets.data_dir
        order = WorkOrder(str(path), str(self.first_tasks.folder), str(data) if data else None, self.plugins)
        command = [sys.executable, "-m", "cscct.studies.worker", order.to_json()]
        gpu = self._gpu(run.settings)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else None
        # A file, because a pipe that is not read while the run works would fill up.
        with open_regular(path / MESSAGES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as messages:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                text=True,
                env=environment,
            )
        if gpu is not None:
            self.on_gpu.append((gpu, process))
        return _ProcessHandle(path / MESSAGES, process)

    def _gpu(self, settings: Settings) -> str | None:
        """Return the GPU for a run, or None if the run uses all visible devices or none."""
        runtime = settings.runtime
        if runtime.devices * runtime.nodes > 1 or choose_device(runtime.device) != "cuda":
            return None
        self.on_gpu = [(gpu, process) for gpu, process in self.on_gpu if process.poll() is None]
        runs = Counter(gpu for gpu, _ in self.on_gpu)
        return min(visible_gpus(), key=lambda gpu: runs[gpu], default=None)


class _ProcessHandle:
    """Handle of a run in a separate process, which writes its messages to a file."""

    def __init__(self, messages: Path, process: subprocess.Popen[str]):
        self.messages, self.process = messages, process
        self.kill, self.request_stop = process.kill, process.terminate

    def outcome(self) -> RunOutcome | None:
        code = self.process.poll()
        if code is None:
            return None
        lines = self.messages.read_text().strip().splitlines()
        warnings = tuple(line.removeprefix("warning: ") for line in lines if line.startswith("warning: "))
        status = next((status for status, known in EXIT_CODES.items() if known == code), "died")
        last = lines[-1] if lines else ""
        if status == "finished":
            return RunOutcome("finished", "", warnings)
        if status != "died" and last.startswith("error: "):
            return RunOutcome(status, last.removeprefix("error: "), warnings)  # type: ignore[arg-type]
        reason = f"it was ended by signal {-code}." if code < 0 else last or f"it ended with code {code}."
        return RunOutcome("died", reason, warnings)

    def wait(self) -> None:
        self.process.wait()
