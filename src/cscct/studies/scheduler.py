"""The scheduler of studies: starts runs, collects their outcomes and restarts runs that died."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..config import Settings
from ..errors import FolderInUse, Interrupted, RunFailed, UserError
from ..storage import LOCK, locked
from .plan import PlannedRun
from .worker import RunOutcome

POLL_SECONDS = 0.2
Stop = Callable[[], bool]


class RunHandle(Protocol):
    """A run that has been started."""

    def outcome(self) -> RunOutcome | None:
        """Return how the run ended, or None if it has not ended."""

    def request_stop(self) -> None:
        """Request that the run writes a checkpoint and ends."""

    def wait(self) -> None:
        """Wait until the run ends, or for as long as a requested stop may take."""

    def kill(self) -> None:
        """End the run without a checkpoint."""


class Executor(Protocol):
    """Where runs are executed: this process, other processes of this machine, or a cluster."""

    slots: int  # runs at a time

    def check(self, settings: Settings) -> None:
        """Raise a `UserError` if a run with these settings cannot be executed."""

    def start(self, run: PlannedRun) -> RunHandle:
        """Start a run, whose folder contains its config."""


@dataclass
class StudyStatus:
    """The states of all runs of a study.

    Attributes:
        states: By name: `waiting`, `held` (by another process), `running`, `finished`, `failed` or `cancelled`.
        attempts: How often each run was started.
        messages: Why a run failed, died or is held, by name.
        refused: Names of the runs that failed because of a user error.
    """

    states: dict[str, str]
    attempts: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def failures(self) -> list[str]:
        """Return a message for each run that failed."""
        return [f"{name}: {self.messages[name]}" for name, state in self.states.items() if state == "failed"]

    def raise_for_failures(self) -> None:
        """Raise if any run failed: `UserError` if all failed runs were refused, else `RunFailed`."""
        failures = self.failures()
        if not failures:
            return
        failed = {name for name, state in self.states.items() if state == "failed"}
        reasons = {self.messages[name] for name in failed}
        message = reasons.pop() if len(reasons) == 1 else " ".join(failures)
        kind = UserError if failed <= self.refused else RunFailed
        raise kind(f"{len(failures)} of {len(self.states)} runs failed. {message}")


class StatusListener(Protocol):
    """Called after each change with the name of the run, and regularly with None."""

    def __call__(self, status: StudyStatus, changed: str | None) -> None: ...


class Scheduler:
    """Executes the runs of a plan, up to `executor.slots` at a time.

    A run waits while another run trains the first task that both share, and while another process works on it. A run
    that dies is started again and continues from its checkpoint. A run that fails does not stop the others.

    Args:
        plan: Complete runs. A run that occurs twice is executed once.
        executor: Where the runs are executed.
        watch: Called with the status.
        warn: Called with each warning of a run, once per text.
        stop: Called regularly. If it returns True, all runs write checkpoints and `run` raises `Interrupted`.
        retries: How often a run that dies is started again.
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
        runs = {run.name: run for run in plan}
        self.waiting = {name: run for name, run in runs.items() if run.state() != "finished"}
        self.running: dict[str, tuple[PlannedRun, RunHandle]] = {}
        self.status = StudyStatus({name: "waiting" if name in self.waiting else "finished" for name in runs})
        self.ready = {run.first_task for run in runs.values() if run.has_first_task()}
        self.warned: set[str] = set()
        self.cancelled: set[str] = set()
        self.folder = plan[0].folder.path.parent if plan else None

    def add(self, run: PlannedRun) -> None:
        """Add a run to the plan."""
        self.waiting[run.name] = run
        self.status.states[run.name] = "waiting"

    def cancel(self, name: str) -> None:
        """Stop a run, which is not started again."""
        self.cancelled.add(name)
        if name in self.running:
            self.running[name][1].request_stop()

    def refill(self) -> None:
        """Called before runs are started. A subclass may add or cancel runs; a plan is complete from the start."""

    def run(self) -> StudyStatus:
        """Execute all runs and return their status. Raise `Interrupted` if a stop is requested."""
        self.watch(self.status, None)
        self.refill()
        try:
            while self.waiting or self.running:
                for run in list(self.waiting.values()):
                    if not self.stop() and len(self.running) < self.executor.slots and self._may_start(run):
                        self._start(run)
                        self._collect()  # a run in this process has ended
                self._collect()
                if self.stop() and (self.waiting or self.running):
                    self._stop_all()
                self.watch(self.status, None)
                self.refill()
                if self.waiting or self.running:
                    time.sleep(POLL_SECONDS)
        finally:
            for _, handle in self.running.values():
                handle.kill()
        return self.status

    def _may_start(self, run: PlannedRun) -> bool:
        message = in_use(run)
        if message is not None:
            if self.status.messages.get(run.name) != message:
                self._change(run.name, "held", message)
            return False
        self.status.states[run.name] = "waiting"
        rivals = [rival for rival, _ in self.running.values() if rival.first_task == run.first_task]
        if any(rival.has_first_task() for rival in rivals):
            self.ready.add(run.first_task)
        return not rivals or run.first_task in self.ready

    def _start(self, run: PlannedRun) -> None:
        del self.waiting[run.name]
        damage = run.damage()
        if damage is not None:
            self.status.refused.add(run.name)
            self._change(run.name, "failed", damage)
            return
        if run.state() == "finished":  # by the process that held it
            self._change(run.name, "finished")
            return
        run.begin()
        self.status.states[run.name] = "running"
        self.status.attempts[run.name] = self.status.attempts.get(run.name, 0) + 1
        self.watch(self.status, None)
        self.running[run.name] = (run, self.executor.start(run))

    def _collect(self) -> None:
        for name, (run, handle) in list(self.running.items()):
            outcome = handle.outcome()
            if outcome is None or (outcome.status == "stopped" and self.stop()):
                continue
            del self.running[name]
            self._forward(name, outcome.warnings)
            if outcome.status == "refused":
                self.status.refused.add(name)
            restart = outcome.status in ("died", "stopped") and self.status.attempts[name] <= self.retries
            if name in self.cancelled and outcome.status in ("died", "stopped"):
                self._change(name, "cancelled")
            elif restart and not self.stop():
                self.waiting = {name: run, **self.waiting}
                self._change(name, "waiting", outcome.message)
            else:
                self._change(name, "finished" if outcome.status == "finished" else "failed", outcome.message)

    def _change(self, name: str, state: str, message: str = "") -> None:
        self.status.states[name], self.status.messages[name] = state, message
        self.watch(self.status, name)

    def _forward(self, name: str, warnings: Iterable[str]) -> None:
        """Forward each warning once, although many runs give the same one."""
        for message in warnings:
            if message not in self.warned:
                self.warned.add(message)
                self.warn(f"{name}: {message}")

    def _stop_all(self) -> None:
        """Stop all runs. All get the request before the first is waited for."""
        handles = [handle for _, handle in self.running.values()]
        for handle in handles:
            handle.request_stop()
        for handle in handles:
            handle.wait()
        outcomes = [handle.outcome() for handle in handles]
        lost = sum(outcome is None or outcome.status not in ("stopped", "finished") for outcome in outcomes)
        how = f"; {lost} of {len(handles)} runs did not write a checkpoint in time" if lost else " after checkpoints"
        raise Interrupted(f"Stopped{how}. Run the same command with --out {self.folder} to continue.")


def in_use(run: PlannedRun) -> str | None:
    """Return a message that names the process which works on a run, or None."""
    if not (run.folder.path / LOCK).exists():
        return None
    try:
        with locked(run.folder.path):
            return None
    except FolderInUse as error:
        return str(error)
    except UserError:  # reported when the run starts
        return None
