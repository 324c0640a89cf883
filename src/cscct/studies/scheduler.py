"""The scheduler of studies: which run is started when, what becomes of it, and what is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..config import Settings
from ..errors import FolderInUse, Interrupted, RunFailed, UserError
from ..runs.files import LOCK, locked
from .plan import PlannedRun
from .worker import Outcome

POLL_SECONDS = 0.2
Stop = Callable[[], bool]


class RunHandle(Protocol):
    """A run that has been started."""

    def ended(self) -> Outcome | None: ...

    def ask_to_stop(self) -> None: ...

    def wait(self) -> None: ...

    def kill(self) -> None: ...


class Executor(Protocol):
    """Where runs are carried out: this process, others of this machine, or a cluster."""

    slots: int  # runs at a time

    def check(self, settings: Settings) -> None:
        """Refuses a run that cannot be carried out there, before any begins."""

    def start(self, run: PlannedRun) -> RunHandle: ...


@dataclass
class StudyStatus:
    """How far each run is."""

    states: dict[str, str]  # by name: waiting, held (by another process), running, finished, failed
    attempts: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # why a run failed, died or is held
    refused: set[str] = field(default_factory=set)  # of those that failed: by a mistake in what was asked for

    def failures(self) -> list[str]:
        """A sentence for each run that failed."""
        return [f"{name}: {self.words[name]}" for name, state in self.states.items() if state == "failed"]

    def raise_for_failures(self) -> None:
        """Raises if any run failed: `UserError` where all of them were refused, else `RunFailed`."""
        failures = self.failures()
        if not failures:
            return
        failed = {name for name, state in self.states.items() if state == "failed"}
        reasons = {self.words[name] for name in failed}
        told = reasons.pop() if len(reasons) == 1 else " ".join(failures)
        kind = UserError if failed <= self.refused else RunFailed
        raise kind(f"{len(failures)} of {len(self.states)} runs failed. {told}")


class StatusListener(Protocol):
    """Is told after each change, with the name of the run, and now and then without one."""

    def __call__(self, status: StudyStatus, changed: str | None) -> None: ...


class Scheduler:
    """Carries out the runs of a plan, up to `executor.slots` at a time.

    A run waits while another is training the first task that it can use, and while another process works on it; one
    that dies is started again and goes on from its checkpoint; one that fails does not stop the rest.
    """

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        executor: Executor,
        watch: StatusListener,
        warn: Callable[[str], None],
        stop: Stop,
        retries: int = 2,
    ):
        self.executor, self.watch, self.warn, self.stop, self.retries = executor, watch, warn, stop, retries
        runs = {run.name: run for run in plan}  # a run that stands in a plan twice is carried out once
        self.waiting = {name: run for name, run in runs.items() if run.state() != "finished"}
        self.running: dict[str, tuple[PlannedRun, RunHandle]] = {}
        self.status = StudyStatus({name: "waiting" if name in self.waiting else "finished" for name in runs})
        self.ready = {run.first_task for run in runs.values() if run.has_first_task()}
        self.warned: set[str] = set()
        self.folder = plan[0].folder.path.parent

    def run(self) -> StudyStatus:
        """Until all runs have ended, or a stop is asked for, which raises `Interrupted`."""
        self.watch(self.status, None)
        try:
            while self.waiting or self.running:
                for run in list(self.waiting.values()):
                    if not self.stop() and len(self.running) < self.executor.slots and self._may_start(run):
                        self._start(run)
                        self._collect()  # a run in this process has ended by now
                self._collect()
                if self.stop() and (self.waiting or self.running):
                    self._stop_all()
                self.watch(self.status, None)
                if self.waiting or self.running:
                    time.sleep(POLL_SECONDS)
        finally:
            for _, handle in self.running.values():
                handle.kill()
        return self.status

    def _may_start(self, run: PlannedRun) -> bool:
        holder = lock_holder(run)
        if holder is not None:
            if self.status.words.get(run.name) != holder:
                self._change(run.name, "held", holder)
            return False
        self.status.states[run.name] = "waiting"
        rivals = [other for other, _ in self.running.values() if other.first_task == run.first_task]
        if any(other.has_first_task() for other in rivals):
            self.ready.add(run.first_task)
        return not rivals or run.first_task in self.ready

    def _start(self, run: PlannedRun) -> None:
        del self.waiting[run.name]
        damage = run.damage()
        if damage is not None:
            self.status.refused.add(run.name)
            self._change(run.name, "failed", damage)
            return
        if run.state() == "finished":  # the process that held it has done it all
            self._change(run.name, "finished")
            return
        run.begin()
        self.status.states[run.name] = "running"
        self.status.attempts[run.name] = self.status.attempts.get(run.name, 0) + 1
        self.watch(self.status, None)
        self.running[run.name] = (run, self.executor.start(run))

    def _collect(self) -> None:
        for name, (run, handle) in list(self.running.items()):
            outcome = handle.ended()
            if outcome is None or (outcome.how == "stopped" and self.stop()):
                continue
            del self.running[name]
            self._pass_on(name, outcome.warnings)
            if outcome.how == "refused":
                self.status.refused.add(name)
            if outcome.how in ("died", "stopped") and self.status.attempts[name] <= self.retries and not self.stop():
                self.waiting = {name: run, **self.waiting}
                self._change(name, "waiting", outcome.words)
            else:
                self._change(name, "finished" if outcome.how == "finished" else "failed", outcome.words)

    def _change(self, name: str, state: str, words: str = "") -> None:
        self.status.states[name], self.status.words[name] = state, words
        self.watch(self.status, name)

    def _pass_on(self, name: str, warnings: Iterable[str]) -> None:
        """Many runs say the same: it is said once."""
        for sentence in warnings:
            if sentence not in self.warned:
                self.warned.add(sentence)
                self.warn(f"{name}: {sentence}")

    def _stop_all(self) -> None:
        """All are asked before any is waited for."""
        handles = [handle for _, handle in self.running.values()]
        for handle in handles:
            handle.ask_to_stop()
        for handle in handles:
            handle.wait()
        outcomes = [handle.ended() for handle in handles]
        lost = sum(outcome is None or outcome.how not in ("stopped", "finished") for outcome in outcomes)
        how = f"; {lost} of {len(handles)} runs did not write a checkpoint in time" if lost else " after checkpoints"
        raise Interrupted(f"Stopped{how}. The same command with --out {self.folder} goes on from there.")


def lock_holder(run: PlannedRun) -> str | None:
    """A sentence that says which process works on a run, if one does."""
    if not (run.folder.path / LOCK).exists():
        return None
    try:
        with locked(run.folder.path):
            return None
    except FolderInUse as held:
        return str(held)
    except UserError:  # the run itself says what is wrong with its folder
        return None
