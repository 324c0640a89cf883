"""What people see while many runs work elsewhere: a table on a terminal, a line for each end otherwise."""

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

from ..runs.folder import METRICS
from ..studies.estimate import seconds
from ..studies.plan import PlannedRun
from ..studies.scheduler import StudyStatus
from .progress import Mode, Terminal, clock

REFRESH_SECONDS = 1.0
ENDED_SHOWN = 6


class RunProgress(NamedTuple):
    """What the folder of a run tells about it."""

    done: float  # of its tasks, the one in work counted by its epochs
    tasks: int
    where: str
    accuracy: float | None


def run_progress(run: PlannedRun) -> RunProgress:
    """How far a run is, from its files."""
    result = run.result()
    done, total = len(result.get("tasks", ())), len(result.get("task_sizes", ()))
    accuracy = result["tasks"][-1]["accuracy"][result["headline"]] if done else None
    epoch = last_epoch(run.folder.path / METRICS)
    if not total:
        return RunProgress(0.0, 0, "starting", None)
    if done == total or epoch is None or epoch["task"] < done:
        return RunProgress(float(done), total, f"task {min(done + 1, total)}/{total}", accuracy)
    stage = run.settings.finetune if epoch["stage"] == "finetune" else run.settings.train
    epochs = stage.epochs if stage is not None else 1
    part = (epoch["epoch"] + 1) / epochs
    where = f"task {done + 1}/{total} {epoch['stage']} epoch {epoch['epoch'] + 1}/{epochs}"
    return RunProgress(done + min(part, 1.0), total, where, accuracy)


def last_epoch(path: Path) -> Mapping[str, Any] | None:
    """The last whole line, without reading the rest; nothing where it cannot be read."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
    try:
        found = json.loads(lines[-1])
        return {"task": int(found["task"]), "stage": str(found["stage"]), "epoch": int(found["epoch"])}
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


class RunsTable(Terminal):
    """Shows the status of many runs."""

    def __init__(self, mode: Mode):
        super().__init__(mode)
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if mode == "live" else None
        self.runs: dict[str, PlannedRun] = {}
        self.ended: list[str] = []
        self.drawn = 0.0

    def follow(self, plan: Sequence[PlannedRun]) -> RunsTable:
        """Show the runs of a plan from now on."""
        self.runs = {run.name: run for run in plan}
        self.weights = {run.name: sum(seconds(run.settings) or (1.0,)) for run in plan}
        self.started = time.monotonic()
        self.before = sum(self._share(name) for name in self.runs)
        return self

    def __enter__(self) -> RunsTable:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, status: StudyStatus, changed: str | None) -> None:
        if changed is not None:
            self._tell(status, changed)
        if self.live and (changed is not None or time.monotonic() - self.drawn > REFRESH_SECONDS):
            self.drawn = time.monotonic()
            self.live.update(self._table(status), refresh=True)

    def _tell(self, status: StudyStatus, name: str) -> None:
        state = status.states[name]
        if state in ("finished", "failed"):
            self.ended.append(name)
        words = {
            "finished": "finished" + _percent(run_progress(self.runs[name]).accuracy),
            "failed": f"failed: {status.words.get(name)}",
            "waiting": f"died ({status.words.get(name)}) and is started again",
            "held": f"has to wait. {status.words.get(name)}",
        }[state]
        if state != "finished" or not self.live:
            self.say(f"{_count(status)} | {name} {words} | {self._left(status)}")

    def _share(self, name: str) -> float:
        """Of the work of a run that is done, in the units of `weights`."""
        far = run_progress(self.runs[name])
        return self.weights[name] * (far.done / far.tasks if far.tasks else 0.0)

    def _left(self, status: StudyStatus) -> str:
        elapsed = time.monotonic() - self.started
        open_ = [name for name, state in status.states.items() if state != "failed"]
        done = sum(self._share(name) for name in open_)
        if done <= self.before:
            return "time left not known yet"
        rest = sum(self.weights[name] for name in open_) - done
        return f"about {clock(rest * elapsed / (done - self.before))} left"

    def _table(self, status: StudyStatus) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("run", overflow="fold", ratio=1)  # a name that is cut cannot be told from others
        for column in ("state", "where", "accuracy (%)"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for name, state in status.states.items():
            if state in ("running", "held") or name in self.ended[-ENDED_SHOWN:]:
                far = run_progress(self.runs[name])
                where = (
                    status.words.get(name, "")
                    if state in ("failed", "held")
                    else far.where
                    if state == "running"
                    else ""
                )
                accuracy = "" if far.accuracy is None else f"{far.accuracy:.2f}"
                table.add_row(Text(name), state, Text(where), accuracy)
        return Group(Text(f"{_count(status)} | {self._left(status)}"), table)


def _count(status: StudyStatus) -> str:
    states = list(status.states.values())
    more = [f"{states.count(state)} {state}" for state in ("running", "waiting", "held", "failed") if state in states]
    return ", ".join([f"{states.count('finished')} of {len(states)} runs finished", *more])


def _percent(accuracy: float | None) -> str:
    return "" if accuracy is None else f", {accuracy:.2f} % after the last task"
