"""Many runs, one after another here or several at a time in processes of their own; first tasks are shared."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import Settings
from ..data import Dataset
from ..errors import Interrupted, RunFailed
from ..learn.build import Warn, complete, load_dataset
from .runner import Result, RunListener, execute
from .store import FirstTasks, RunFolder, first_task_fingerprint

POLL_SECONDS = 0.2
MESSAGES = "messages.txt"
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Job:
    settings: Settings  # complete
    folder: RunFolder
    first_task: str  # fingerprint of what it could share


class Datasets:
    """Loads each dataset once for all the runs that read it the same way."""

    def __init__(self, data_dir: Path | None, warn: Warn):
        self.data_dir, self.warn = data_dir, warn
        self.loaded: dict[tuple[str, bool, float, int], Dataset] = {}
        self.hashes: dict[int, str] = {}

    def of(self, settings: Settings) -> Dataset:
        data = settings.data
        seed = settings.seed if settings.dataset == "folder" else 0  # the split of a folder is drawn from the seed
        key = (settings.dataset, data.skip_bad_images, data.test_fraction, seed)
        if key not in self.loaded:
            self.loaded[key] = load_dataset(settings, self.data_dir, self.warn)
        return self.loaded[key]

    def complete(self, settings: Settings) -> Settings:
        return complete(settings, self.of(settings))

    def job(self, settings: Settings, folder: RunFolder) -> Job:
        """Hashing the data takes a moment, so it is done once."""
        dataset, settings = self.of(settings), self.complete(settings)
        if id(dataset) not in self.hashes:
            self.hashes[id(dataset)] = dataset.fingerprint()
        return Job(settings, folder, first_task_fingerprint(settings, self.hashes[id(dataset)]))


def run_here(
    jobs: Sequence[Job], datasets: Datasets, first_tasks: FirstTasks, listener: RunListener, stop: Stop
) -> list[Result]:
    """One after another in this process. What is finished already is only read."""
    results, failures = [], []
    for job in jobs:
        if job.folder.state(job.settings) == "finished":
            results.append(job.folder.result())
            listener.run_finished(results[-1], job.folder.path)
            continue
        try:
            dataset = datasets.of(job.settings)
            results.append(execute(job.settings, dataset, job.folder, listener, datasets.warn, first_tasks, stop))
        except RunFailed as failure:
            failures.append(f"{job.folder.path.name}: {failure}")
    _raise(failures, len(jobs))
    return results


def run_in_processes(
    jobs: Sequence[Job],
    processes: int,
    first_tasks: FirstTasks,
    arguments: Sequence[str],
    finished: Callable[[Job, int], None],
    stop: Stop,
) -> list[Result]:
    """Up to `processes` at a time. A run waits while another is training the first task that it can use.

    arguments: further words for each `cscct run` (data folder, plugins); `finished` hears of each end.
    """
    waiting = [job for job in jobs if job.folder.state(job.settings) != "finished"]
    for job in jobs:
        if job not in waiting:
            finished(job, 0)
    running: dict[subprocess.Popen[str], Job] = {}
    failures = []
    try:
        while waiting or running:
            for job in list(waiting):
                if len(running) < processes and _may_start(job, running, first_tasks):
                    waiting.remove(job)
                    running[_start(job, first_tasks, arguments)] = job
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                if process.returncode:
                    said = _last_line(job) or f"ended with code {process.returncode}"
                    failures.append(f"{job.folder.path.name}: {said}")
                finished(job, process.returncode)
            if stop():
                for process in running:
                    process.terminate()  # a request: each writes a checkpoint and ends
                for process in running:
                    process.wait()
                raise Interrupted("Stopped after checkpoints. The same command goes on from there.")
            time.sleep(POLL_SECONDS)
    finally:
        for process in running:
            process.kill()
    _raise(failures, len(jobs))
    return [job.folder.result() for job in jobs]


def _may_start(job: Job, running: dict[subprocess.Popen[str], Job], first_tasks: FirstTasks) -> bool:
    in_training = {other.first_task for other in running.values()}
    return job.first_task not in in_training or first_tasks.has(job.first_task)


def _start(job: Job, first_tasks: FirstTasks, arguments: Sequence[str]) -> subprocess.Popen[str]:
    if job.folder.state(job.settings) == "free":
        job.folder.create(job.settings)
    config, out = str(job.folder.path / "config.yaml"), str(job.folder.path)
    words = [
        "run",
        "--config",
        config,
        "--out",
        out,
        "--quiet",
        "--first-tasks",
        str(first_tasks.folder),
        *arguments,
    ]
    with (job.folder.path / MESSAGES).open("w") as messages:  # not a pipe: nobody reads it while the run works
        command = [sys.executable, "-m", "cscct", *words]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages, text=True)


def _last_line(job: Job) -> str:
    lines = (job.folder.path / MESSAGES).read_text().strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else ""


def _raise(failures: Sequence[str], total: int) -> None:
    if failures:
        raise RunFailed(f"{len(failures)} of {total} runs failed. " + " ".join(failures))
