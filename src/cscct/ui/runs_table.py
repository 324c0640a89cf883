"""Progress of many runs in other processes: a table on a terminal, else a line for each finished run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..progress import Display, Mode, Terminal, clock
from ..runs.folder import METRICS
from ..studies.plan import PlannedRun
from ..studies.scheduler import StatusListener, StudyStatus

REFRESH_SECONDS = 1.0
ENDED_SHOWN = 6


class RunProgress(NamedTuple):
    """Progress of a run according to its folder.

    Attributes:
        done: Number of finished tasks, with the finished fraction of the current one.
        tasks: Number of tasks.
        where: Current task, stage and epoch.
        accuracy: Accuracy after the last finished task, in percent.
    """

    done: float
    tasks: int
    where: str
    accuracy: float | None


def run_progress(run: PlannedRun) -> RunProgress:
    """Return the progress of a run from its files."""
    result = run.result()
    done, total = len(result.get("tasks", ())), len(result.get("task_sizes", ()))
    accuracy = result["tasks"][-1]["accuracy"][result["headline"]] if done else None
    epoch = last_epoch(run.folder.path / METRICS)
    if not total:
        return RunProgress(0.0, 0, "starting", None)
    if done == total or epoch is None or epoch["task"] < done:
        return RunProgress(float(done), total, f"task {min(done + 1, total)}/{total}", accuracy)
    stages = run.settings.active_stages
    stage = stages.get(epoch["stage"]) or stages.get(f"stages.{epoch['stage']}")
    epochs = stage.epochs if stage is not None else 1
    fraction = (epoch["epoch"] + 1) / epochs
    where = f"task {done + 1}/{total} {epoch['stage']} epoch {epoch['epoch'] + 1}/{epochs}"
    return RunProgress(done + min(fraction, 1.0), total, where, accuracy)


def last_epoch(path: Path) -> Mapping[str, Any] | None:
    """Return the last complete line of metrics.jsonl without reading the rest, or None if it is unreadable."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
    try:
        record = json.loads(lines[-1])
        return {"task": int(record["task"]), "stage": str(record["stage"]), "epoch": int(record["epoch"])}
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


class RunSeries(Display):
    """Progress of planned runs that are executed one after another in this process."""

    def follow(self, plan: Sequence[PlannedRun]) -> StatusListener:
        """Return the callback that receives the status of the runs of `plan`."""
        self.runs = len(plan)
        return self.show_status

    def show_status(self, status: StudyStatus, changed: str | None) -> None:
        """Print why a run has failed or has to wait."""
        state = status.states[changed] if changed else ""
        if state in ("failed", "held"):
            self.say(f"{changed} {'failed' if state == 'failed' else 'is waiting'}: {status.messages[changed or '']}")


class RunsTable(Terminal):
    """Shows the status of many runs."""

    live: Live | None

    def __init__(self, mode: Mode):
        super().__init__(mode)
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if mode == "live" else None
        self.runs: dict[str, PlannedRun] = {}
        self.ended: list[str] = []
        self.drawn = 0.0

    def follow(self, plan: Sequence[PlannedRun]) -> RunsTable:
        """Start to show the runs of a plan."""
        self.runs = {run.name: run for run in plan}
        self.started = time.monotonic()
        self.before = sum(self._share(name) for name in self.runs)
        return self

    def __call__(self, status: StudyStatus, changed: str | None) -> None:
        if changed is not None:
            self._print_change(status, changed)
        if self.live and (changed is not None or time.monotonic() - self.drawn > REFRESH_SECONDS):
            self.drawn = time.monotonic()
            self.live.update(self._table(status), refresh=True)

    def _print_change(self, status: StudyStatus, name: str) -> None:
        state = status.states[name]
        if state in ("finished", "failed"):
            self.ended.append(name)
        message = {
            "finished": "finished" + _percent(run_progress(self.runs[name]).accuracy),
            "failed": f"failed: {status.messages.get(name)}",
            "waiting": f"died ({status.messages.get(name)}) and is restarted",
            "held": f"is waiting. {status.messages.get(name)}",
        }[state]
        if state != "finished" or not self.live:
            self.say(f"{_count(status)} | {name} {message} | {self._left(status)}")

    def _share(self, name: str) -> float:
        """Return the fraction of a run's tasks that is done."""
        progress = run_progress(self.runs[name])
        return progress.done / progress.tasks if progress.tasks else 0.0

    def _left(self, status: StudyStatus) -> str:
        elapsed = time.monotonic() - self.started
        names = [name for name, state in status.states.items() if state != "failed"]
        done = sum(self._share(name) for name in names)
        if done <= self.before:
            return "time left unknown"
        return f"about {clock((len(names) - done) * elapsed / (done - self.before))} left"

    def _table(self, status: StudyStatus) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("run", overflow="fold", ratio=1)  # truncated names would not be distinct
        for column in ("state", "where", "accuracy (%)"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for name, state in status.states.items():
            if state in ("running", "held") or name in self.ended[-ENDED_SHOWN:]:
                progress = run_progress(self.runs[name])
                where = progress.where if state == "running" else ""
                if state in ("failed", "held"):
                    where = status.messages.get(name, "")
                accuracy = "" if progress.accuracy is None else f"{progress.accuracy:.2f}"
                table.add_row(Text(name), state, Text(where), accuracy)
        return Group(Text(f"{_count(status)} | {self._left(status)}"), table)


def _count(status: StudyStatus) -> str:
    states = list(status.states.values())
    more = [f"{states.count(state)} {state}" for state in ("running", "waiting", "held", "failed") if state in states]
    return ", ".join([f"{states.count('finished')} of {len(states)} runs finished", *more])


def _percent(accuracy: float | None) -> str:
    return "" if accuracy is None else f", {accuracy:.2f} % after the last task"
