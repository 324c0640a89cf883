"""Many runs, one after another here or several at a time elsewhere; first tasks are shared."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ..config import Settings
from ..data import Dataset
from ..data.sources import Progress, unseen
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

    @property
    def name(self) -> str:
        return self.folder.path.name


class Datasets:
    """Loads each dataset once for all the runs that read it the same way."""

    def __init__(self, data_dir: Path | None, warn: Warn, progress: Progress = unseen):
        self.data_dir, self.warn, self.progress = data_dir, warn, progress
        self.loaded: dict[tuple[str | bool | float | None, ...], Dataset] = {}
        self.hashes: dict[int, str] = {}

    def of(self, settings: Settings) -> Dataset:
        data = settings.data
        seed = settings.seed if settings.dataset == "folder" else 0  # the split of a folder is drawn from the seed
        key = (settings.dataset, data.skip_bad_images, data.test_fraction, data.cache, seed)
        if key not in self.loaded:
            self.loaded[key] = load_dataset(settings, self.data_dir, self.warn, self.progress)
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
            failures.append(f"{job.name}: {failure}")
    raise_failures(failures, len(jobs))
    return results


class End(NamedTuple):
    how: Literal["finished", "failed", "died"]  # what died may be tried again, what failed would fail again
    words: str = ""


class Handle(Protocol):
    """A run that somebody else carries out."""

    def ended(self) -> End | None: ...

    def ask_to_stop(self) -> None: ...

    def wait(self) -> None: ...

    def kill(self) -> None: ...


class Place(Protocol):
    """Where runs are carried out: processes of this machine, or a cluster."""

    slots: int

    def start(self, job: Job) -> Handle: ...


@dataclass
class Ledger:
    """How far each run is; what a table on the terminal shows."""

    states: dict[str, str]  # waiting, running, finished, failed
    attempts: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def failures(self) -> list[str]:
        return [f"{name}: {self.words[name]}" for name, state in self.states.items() if state == "failed"]


class Watch(Protocol):
    def __call__(self, ledger: Ledger, changed: str | None) -> None: ...


def run_elsewhere(
    jobs: Sequence[Job], place: Place, first_tasks: FirstTasks, watch: Watch, stop: Stop, retries: int = 2
) -> Ledger:
    """Up to `place.slots` at a time. A run waits while another is training the first task that it can use; one that
    dies is started again and goes on from its checkpoint; one that fails does not stop the rest."""
    waiting = [job for job in jobs if job.folder.state(job.settings) != "finished"]
    ledger = Ledger({job.name: "waiting" if job in waiting else "finished" for job in jobs})
    running: dict[str, tuple[Job, Handle]] = {}
    watch(ledger, None)
    try:
        while waiting or running:
            for job in list(waiting):
                if len(running) < place.slots and _may_start(job, running.values(), first_tasks):
                    waiting.remove(job)
                    running[job.name] = (job, place.start(job))
                    ledger.states[job.name] = "running"
                    ledger.attempts[job.name] = ledger.attempts.get(job.name, 0) + 1
            for name, (job, handle) in list(running.items()):
                end = handle.ended()
                if end is None:
                    continue
                del running[name]
                again = end.how == "died" and ledger.attempts[name] <= retries and not stop()
                ledger.states[name] = "waiting" if again else "finished" if end.how == "finished" else "failed"
                ledger.words[name] = end.words
                if again:
                    waiting.insert(0, job)
                watch(ledger, name)
            if stop():
                _stop([handle for _, handle in running.values()])
                raise Interrupted("Stopped after checkpoints. The same command goes on from there.")
            watch(ledger, None)
            time.sleep(POLL_SECONDS)
    finally:
        for _, handle in running.values():
            handle.kill()
    return ledger


def _may_start(job: Job, running: Iterable[tuple[Job, Handle]], first_tasks: FirstTasks) -> bool:
    in_training = {other.first_task for other, _ in running}
    return job.first_task not in in_training or first_tasks.has(job.first_task)


def _stop(handles: Sequence[Handle]) -> None:
    """All are asked before any is waited for."""
    for handle in handles:
        handle.ask_to_stop()
    for handle in handles:
        handle.wait()


class Processes:
    """Runs as processes of this machine, each a `cscct run`.

    arguments: further words for each of them (data folder, plugins).
    """

    def __init__(self, slots: int, first_tasks: FirstTasks, arguments: Sequence[str] = ()):
        self.slots, self.first_tasks, self.arguments = slots, first_tasks, tuple(arguments)

    def start(self, job: Job) -> Handle:
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

    def ended(self) -> End | None:
        code = self.process.poll()
        if code is None:
            return None
        if code == 0:
            return End("finished")
        lines = (self.job.folder.path / MESSAGES).read_text().strip().splitlines()
        words = lines[-1].removeprefix("error: ") if lines else ""
        if code < 0 or not words.strip() or not lines[-1].startswith("error: "):
            return End(
                "died", f"it was ended by signal {-code}." if code < 0 else words or f"it ended with code {code}."
            )
        return End("failed", words)

    def wait(self) -> None:
        self.process.wait()


def begin(job: Job) -> None:
    """A folder with the config, where there is none yet."""
    if job.folder.state(job.settings) == "free":
        job.folder.create(job.settings)


def raise_failures(failures: Sequence[str], total: int) -> None:
    if failures:
        raise RunFailed(f"{len(failures)} of {total} runs failed. " + " ".join(failures))
