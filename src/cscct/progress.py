"""Progress of runs and of reading data: a live display in terminals and notebooks, lines in log files, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from .config import Settings
from .runs.listeners import Listener
from .streams import is_follower
from .structs import Task

Mode = Literal["live", "plain", "quiet"]
PLAIN_SECONDS = 30.0  # between plain lines within a task


def display_mode(quiet: bool = False, *, fallback: Mode = "quiet") -> Mode:
    """Return how this process displays progress.

    Args:
        quiet: Display nothing.
        fallback: Mode if standard error is neither a terminal nor part of a notebook, for example a log file.

    Returns:
        `"live"` in a terminal and in a notebook, `"plain"` in a notebook without ipywidgets, else `fallback`.
    """
    if quiet or is_follower():
        return "quiet"
    if Console(stderr=True).is_jupyter:
        return "live" if find_spec("ipywidgets") else "plain"  # rich needs it to update its output
    return "live" if sys.stderr is not None and sys.stderr.isatty() else fallback


def default_display(quiet: bool = False) -> Display:
    """Return the progress display of a function that is called from Python.

    The display is a context manager and a `Listener`; its method `reading` is a progress callback.

    Args:
        quiet: Display nothing. Scripts whose standard error is redirected never display progress.
    """
    return Display(display_mode(quiet))


class _Live(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class Terminal:
    """Messages on standard error, and a live display in a `with` block. Standard output is reserved for results."""

    live: _Live | None = None

    def __init__(self, mode: Mode):
        self.console = Console(stderr=True, highlight=False, soft_wrap=mode == "plain")
        self.mode = mode

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def warn(self, message: str) -> None:
        """Print a warning, in every mode."""
        self.console.print(f"warning: {message}", style="yellow", markup=False)

    def say(self, line: str) -> None:
        """Print a line, unless the mode is `quiet`."""
        if self.mode != "quiet":
            self.console.print(line, markup=False)

    def reading(self, what: str, done: int, total: int) -> None:
        """Show how many items have been processed. By default, nothing is shown."""


class Display(Terminal, Listener):
    """Progress of one run, or of several runs one after another.

    Args:
        mode: `live`, `plain` or `quiet`.
        runs: Number of runs.
    """

    live: Progress | None

    def __init__(self, mode: Mode, runs: int = 1):
        super().__init__(mode)
        self.runs, self.run = runs, 0
        self.done = self.images = self.first = 0
        self.what = ""
        self.started = self.last_line = time.monotonic()
        self.live = self._live() if mode == "live" else None
        self.bar = self.live.add_task("starting", total=1, status="") if self.live else None

    def _live(self) -> Progress:
        # On a narrow terminal the status is shortened, and the position and the bar remain complete.
        columns = (
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=18, table_column=Column(min_width=18)),
            TextColumn("{task.fields[status]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        )
        return Progress(*columns, console=self.console, transient=True, refresh_per_second=5, expand=True)

    def reading(self, what: str, done: int, total: int) -> None:
        """Show how many items have been processed, and the remaining time.

        Args:
            what: Name of the activity, such as `checking images`.
            done: Number of processed items.
            total: Number of items.
        """
        now = time.monotonic()
        if what != self.what:  # an earlier process may have processed the first `done` items
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
        """Show the start of a run. images: total number of training images over all epochs."""
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
        """Show the progress after a training step."""
        self.done += images
        now = time.monotonic()
        if self.mode == "quiet" or (self.mode == "plain" and now - self.last_line < PLAIN_SECONDS):
            return
        rate = self.done / max(now - self.started, 1e-9)
        left = clock((self.images - self.done) / rate)
        where = f"task {task.index + 1}/{len(self.tasks)} {stage} epoch {epoch + 1}/{epochs}"
        # The losses are last because a narrow terminal cuts the end of the line.
        losses = " ".join(f"{name} {value:.3f}" for name, value in parts.items())
        status = f"{rate:,.0f} images/s | {left} left | {losses}"
        if self.live and self.bar is not None:
            self.live.update(self.bar, description=where, completed=self.done, total=self.images, status=status)
        else:
            self.last_line = now
            self.say(f"  {where} | {status}")

    def skipped(self, images: int) -> None:
        self.images -= images
        if images:
            self.say("  (already trained by this or another run)")

    def task_finished(self, entry: Mapping[str, Any]) -> None:
        accuracies = ", ".join(f"{name} {value:.2f} %" for name, value in entry["accuracy"].items())
        if "validation_accuracy" in entry:
            held_out = (f"{name} {value:.2f} %" for name, value in entry["validation_accuracy"].items())
            accuracies += f" (validation: {', '.join(held_out)})"
        self.say(f"  task {entry['task'] + 1}/{len(self.tasks)}: {accuracies}, {clock(entry['seconds'])}")

    def found_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        self.say(f"This run is already finished: {folder}")


def clock(seconds: float) -> str:
    """Return a duration as `minutes:seconds`, `hours:minutes:seconds` or, from 100 hours on, in days."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours >= 100:
        return f"{hours / 24:.0f} days"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
