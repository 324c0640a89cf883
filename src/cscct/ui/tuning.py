"""Progress and results of tuning in a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ..analysis.tuning import STATES, TuningResult
from ..progress import Mode, Terminal, clock
from ..studies.trials import TuningProgress

SHOWN = 10  # trials in a terminal; files have all


class TrialsDisplay(Terminal):
    """Progress of a study: a bar in a terminal, and a line for each trial that ends.

    Args:
        mode: `live`, `plain` or `quiet`.
    """

    live: Progress | None

    def __init__(self, mode: Mode):
        super().__init__(mode)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=18), TextColumn("{task.fields[status]}"))
        self.live = Progress(*columns, console=self.console, transient=True) if mode == "live" else None
        self.bar = self.live.add_task("starting", total=1, status="") if self.live else None
        self.started = time.monotonic()
        self.before: float | None = None  # trials that were done when this process started

    def show(self, progress: TuningProgress) -> None:
        """Show the progress of the study."""
        done = progress.ended + sum(progress.running.values())
        self.before = done if self.before is None else self.before
        if self.live and self.bar is not None:
            status = f"{self._best(progress)} | {self._left(progress, done)}"
            description = f"{progress.ended} of {progress.trials} trials"
            self.live.update(self.bar, description=description, completed=done, total=progress.trials, status=status)
        if progress.last is not None:
            trial, state = progress.last, STATES[progress.last.state.name]
            values = ", ".join(f"{key}={_text(value)}" for key, value in trial.params.items())
            outcome = f"{trial.value:.2f} %" if trial.value is not None and state == "complete" else state
            reason = f" ({trial.user_attrs['error']})" if "error" in trial.user_attrs else ""
            self.say(
                f"trial {trial.number} ({progress.ended} of {progress.trials}): {values}: {outcome}{reason} | "
                f"{self._best(progress)} | {self._left(progress, done)}"
            )

    def _best(self, progress: TuningProgress) -> str:
        best = progress.best
        return f"best {best.value:.2f} % (trial {best.number})" if best and best.value is not None else "no best yet"

    def _left(self, progress: TuningProgress, done: float) -> str:
        gained = done - (self.before or 0.0)
        if gained <= 0:
            return "time left unknown"
        return f"about {clock((progress.trials - done) * (time.monotonic() - self.started) / gained)} left"


def print_tuning(result: TuningResult) -> None:
    """Print the best trials and how to use the best settings."""
    keys = list(result.trials[0].settings) if result.trials else []
    counts = {state: sum(trial.state == state for trial in result.trials) for state in STATES.values()}
    text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    title = f"{len(result.trials)} trials ({text}); {result.metric.replace('_', ' ')} on validation images, in percent"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("trial", *keys, "value", "state", "time"):
        table.add_column(name, justify="left" if name == "state" else "right", overflow="fold")
    for trial in result.ranked()[:SHOWN]:
        value = f"{trial.value:.2f}" if trial.value is not None and trial.state == "complete" else "-"
        values = [_text(trial.settings.get(key)) for key in keys]
        table.add_row(str(trial.number), *values, value, trial.state, clock(trial.seconds))
    Console(highlight=False, width=None if sys.stdout.isatty() else 220).print(table)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
