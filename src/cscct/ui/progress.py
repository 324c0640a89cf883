"""What people see while a run works: a live line on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from ..config import Settings
from ..runs.listeners import Listener
from ..structs import Task

if TYPE_CHECKING:
    from ..studies.scheduler import StudyStatus

Mode = Literal["live", "plain", "quiet"]
PLAIN_SECONDS = 30.0  # between two plain lines within a task


class Terminal:
    """Where words go while something works: the error stream, for the other is for results."""

    def __init__(self, mode: Mode):
        self.console = Console(stderr=True, highlight=False, soft_wrap=mode == "plain")
        self.mode = mode

    def warn(self, sentence: str) -> None:
        self.console.print(f"warning: {sentence}", style="yellow", markup=False)

    def say(self, line: str) -> None:
        if self.mode != "quiet":
            self.console.print(line, markup=False)


class Display(Terminal, Listener):
    """Follows one run or several in a row."""

    def __init__(self, mode: Mode, runs: int = 1):
        super().__init__(mode)
        self.runs, self.run = runs, 0
        self.done = self.images = self.first = 0
        self.what = ""
        self.started = self.last_line = time.monotonic()
        self.live = self._live() if mode == "live" else None
        self.bar = self.live.add_task("reading data", total=1, status="") if self.live else None

    def _live(self) -> Progress:
        # On a narrow terminal the status gives way: where the run is and the bar stay.
        columns = (
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=18, table_column=Column(min_width=18)),
            TextColumn("{task.fields[status]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        )
        return Progress(*columns, console=self.console, transient=True, refresh_per_second=5, expand=True)

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def reading(self, what: str, done: int, total: int) -> None:
        """Of data, before a run: how far, and how long still."""
        now = time.monotonic()
        if what != self.what:  # an earlier process may have done some of it
            self.what, self.first = what, done
            self.started = self.last_line = now
        left = clock((total - done) * (now - self.started) / max(done - self.first, 1))
        status = f"{done:,} of {total:,} | {left} left"
        if self.live and self.bar is not None:
            self.live.update(self.bar, description=what, completed=done, total=total, status=status)
        elif now - self.last_line >= PLAIN_SECONDS:
            self.last_line = now
            self.say(f"  {what}: {status}")

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None:
        self.run += 1
        self.tasks, self.images, self.done = tasks, images, 0
        self.started = self.last_line = time.monotonic()
        count = f" ({self.run} of {self.runs})" if self.runs > 1 else ""
        self.title = f"{settings.method} on {settings.dataset}, seed {settings.seed}{count}"
        sizes = "+".join(str(task.n_new) for task in tasks[:6]) + ("+…" if len(tasks) > 6 else "")
        self.say(f"{self.title}: {len(tasks)} tasks of {sizes} classes")
        if self.live and self.bar is not None:
            self.live.update(self.bar, description="starting", completed=0, total=images, status="")

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        self.done += images
        now = time.monotonic()
        if self.mode == "quiet" or (self.mode == "plain" and now - self.last_line < PLAIN_SECONDS):
            return
        rate = self.done / max(now - self.started, 1e-9)
        left = clock((self.images - self.done) / rate)
        where = f"task {task.index + 1}/{len(self.tasks)} {stage} epoch {epoch + 1}/{epochs}"
        # The losses come last: they are what a narrow terminal cuts off.
        losses = " ".join(f"{name} {value:.3f}" for name, value in parts.items())
        status = f"{rate:,.0f} images/s | {left} left | {losses}"
        if self.live and self.bar is not None:
            self.live.update(self.bar, description=where, completed=self.done, total=self.images, status=status)
        else:
            self.last_line = now
            self.say(f"  {where} | {status}")

    def skipped(self, images: int) -> None:
        """Images that need no training, because another run or an earlier process has done it."""
        self.images -= images
        if images:
            self.say("  (training done before by this or another run)")

    def task_finished(self, entry: Mapping[str, Any]) -> None:
        both = ", ".join(f"{name} {value:.2f} %" for name, value in entry["accuracy"].items())
        self.say(f"  task {entry['task'] + 1}/{len(self.tasks)}: {both}, {clock(entry['seconds'])}")

    def found_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        self.say(f"This run is finished already: {folder}")

    def watch(self, status: StudyStatus, changed: str | None) -> None:
        """Of several runs in a row: those that fail, or are in the hands of another process."""
        state = status.states[changed] if changed else ""
        if state in ("failed", "held"):
            self.say(f"{changed} {'failed' if state == 'failed' else 'has to wait'}: {status.words[changed or '']}")


def clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours >= 100:
        return f"{hours / 24:.0f} days"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
