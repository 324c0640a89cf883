"""Many runs, one after another here or several at a time elsewhere; first tasks are shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ..config import Settings
from ..data import Dataset
from ..data.registry import Progress, no_progress
from ..errors import Interrupted, RunFailed, Warn
from ..learn.dataset import load_dataset
from ..learn.protocol import complete
from ..runs.first_tasks import FirstTaskCache, first_task_fingerprint
from ..runs.folder import RunFolder
from ..runs.listeners import Listener
from ..runs.record import Result
from ..runs.runner import execute

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


class DatasetCache:
    """Loads each dataset once for all the runs that read it the same way."""

    def __init__(self, data_dir: Path | None, warn: Warn, progress: Progress = no_progress):
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


def run_in_process(
    jobs: Sequence[Job], datasets: DatasetCache, first_tasks: FirstTaskCache, listener: Listener, stop: Stop
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


class Outcome(NamedTuple):
    how: Literal["finished", "failed", "died"]  # what died may be tried again, what failed would fail again
    words: str = ""


class RunHandle(Protocol):
    """A run that somebody else carries out."""

    def ended(self) -> Outcome | None: ...

    def ask_to_stop(self) -> None: ...

    def wait(self) -> None: ...

    def kill(self) -> None: ...


class Executor(Protocol):
    """Where runs are carried out: processes of this machine, or a cluster."""

    slots: int

    def start(self, job: Job) -> RunHandle: ...


@dataclass
class StudyStatus:
    """How far each run is; what a table on the terminal shows."""

    states: dict[str, str]  # waiting, running, finished, failed
    attempts: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def failures(self) -> list[str]:
        return [f"{name}: {self.words[name]}" for name, state in self.states.items() if state == "failed"]


class StatusListener(Protocol):
    def __call__(self, status: StudyStatus, changed: str | None) -> None: ...


def run_study(
    jobs: Sequence[Job],
    place: Executor,
    first_tasks: FirstTaskCache,
    watch: StatusListener,
    stop: Stop,
    retries: int = 2,
) -> StudyStatus:
    """Up to `place.slots` at a time. A run waits while another is training the first task that it can use; one that
    dies is started again and goes on from its checkpoint; one that fails does not stop the rest."""
    waiting = [job for job in jobs if job.folder.state(job.settings) != "finished"]
    status = StudyStatus({job.name: "waiting" if job in waiting else "finished" for job in jobs})
    running: dict[str, tuple[Job, RunHandle]] = {}
    watch(status, None)
    try:
        while waiting or running:
            for job in list(waiting):
                if len(running) < place.slots and _may_start(job, running.values(), first_tasks):
                    waiting.remove(job)
                    running[job.name] = (job, place.start(job))
                    status.states[job.name] = "running"
                    status.attempts[job.name] = status.attempts.get(job.name, 0) + 1
            for name, (job, handle) in list(running.items()):
                end = handle.ended()
                if end is None:
                    continue
                del running[name]
                again = end.how == "died" and status.attempts[name] <= retries and not stop()
                status.states[name] = "waiting" if again else "finished" if end.how == "finished" else "failed"
                status.words[name] = end.words
                if again:
                    waiting.insert(0, job)
                watch(status, name)
            if stop():
                _stop([handle for _, handle in running.values()])
                raise Interrupted("Stopped after checkpoints. The same command goes on from there.")
            watch(status, None)
            time.sleep(POLL_SECONDS)
    finally:
        for _, handle in running.values():
            handle.kill()
    return status


def _may_start(job: Job, running: Iterable[tuple[Job, RunHandle]], first_tasks: FirstTaskCache) -> bool:
    in_training = {other.first_task for other, _ in running}
    return job.first_task not in in_training or first_tasks.has(job.first_task)


def _stop(handles: Sequence[RunHandle]) -> None:
    """All are asked before any is waited for."""
    for handle in handles:
        handle.ask_to_stop()
    for handle in handles:
        handle.wait()


def begin(job: Job) -> None:
    """A folder with the config, where there is none yet."""
    if job.folder.state(job.settings) == "free":
        job.folder.create(job.settings)


def raise_failures(failures: Sequence[str], total: int) -> None:
    if failures:
        raise RunFailed(f"{len(failures)} of {total} runs failed. " + " ".join(failures))
