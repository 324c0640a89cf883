"""Loss terms over tasks and epochs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..analysis.groups import Group
from ..analysis.load import Array
from ..analysis.measures import LossSeries
from ..analysis.plots import COLOURS
from .canvas import PAGE, Layout, ReportFigure, new_figure, plain, style

MAX_BAND = 500  # points of a band; more are not visible and make the page larger
SHARED = "The first task (hatched) was not trained in {these}; the trained network of another run was used."


def loss_curves(name: str, group: Group, series: LossSeries, layout: Layout = PAGE) -> ReportFigure:
    """Draw a panel for each loss term, since their scales differ. All groups have the same task axis."""
    seeds = len(group.runs)
    how = f"Mean over {seeds} seeds, bands ± one standard deviation." if seeds > 1 else f"Seed {group.seeds[0]}."
    tasks = group.runs[0].planned
    shared = f" {SHARED.format(these='these runs' if seeds > 1 else 'this run')}" if _first_task_shared(series) else ""
    return ReportFigure(
        name,
        _draw(series, tasks, layout),
        _table(series),
        f"Curves of {', '.join(series.terms)} over {tasks} tasks of {group.label}, {len(series.places)} epochs in all."
        + shared,
        f"{group.label}. {how} Horizontal: tasks, with the epochs of a task spread evenly over its width "
        f"({_epochs(series)}). Vertical: the weighted loss term.{shared}",
    )


def task_positions(places: list[tuple[int, str, int]]) -> Array:
    """Return horizontal positions of epochs. Task t, counted from 1, is spread from t to t + 1."""
    tasks = np.array([task for task, _, _ in places])
    counts = np.bincount(tasks)
    order = np.concatenate([np.arange(count) for count in counts])
    return np.asarray(tasks + 1 + (order + 0.5) / counts[tasks])


def _first_task_shared(series: LossSeries) -> bool:
    return all(task != 0 for task, _, _ in series.places)


def _epochs(series: LossSeries) -> str:
    counts = np.bincount([task for task, _, _ in series.places])
    numbers = sorted({int(count) for count in counts if count})
    return f"{numbers[0]} epochs a task" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} epochs a task"


def _table(series: LossSeries) -> list[list[Any]]:
    table: list[list[Any]] = [["task", "stage", "epoch"]]
    table[0] += [f"{term}_{part}" for term in series.terms for part in ("mean", "sd")]
    for (task, stage, epoch), mean, sd in zip(series.places, series.mean.tolist(), series.sd.tolist(), strict=True):
        table.append([task + 1, stage, epoch + 1, *(cell for pair in zip(mean, sd, strict=True) for cell in pair)])
    return table


def _draw(series: LossSeries, tasks: int, layout: Layout) -> Figure:
    terms = len(series.terms)
    columns = min(layout.panels, terms)
    rows = math.ceil(terms / columns)
    with style(layout):
        figure = new_figure(layout.width, 0.5 + (1.6 if layout is PAGE else 1.2) * rows)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for i, axes in enumerate(panels.flat):
            if i >= terms:
                axes.set_axis_off()
                continue
            _curve(axes, series, i)
            _task_axis(axes, tasks)
            if _first_task_shared(series):
                axes.axvspan(1, 2, facecolor="0.95", edgecolor="0.8", hatch="///", linewidth=0, zorder=0)
            if i + columns >= terms:  # the last panel of its column
                axes.set_xlabel("task")
                axes.tick_params(labelbottom=True)
    return figure


def _curve(axes: Axes, series: LossSeries, i: int) -> None:
    x, mean, sd = task_positions(series.places), series.mean[:, i], series.sd[:, i]
    axes.plot(x, mean, color=COLOURS[0], linewidth=1.1, marker="." if len(x) <= 40 else "", markersize=4)
    points = slice(None, None, -(-len(x) // MAX_BAND))
    axes.fill_between(x[points], (mean - sd)[points], (mean + sd)[points], color=COLOURS[0], alpha=0.2, linewidth=0)
    _shade_finetuning(axes, series)
    axes.set_title(plain(series.terms[i]), loc="left")


def _task_axis(axes: Axes, tasks: int) -> None:
    """Draw a line where each task begins, and its number below the middle."""
    for start in range(2, tasks + 1):
        axes.axvline(start, color="0.65", linewidth=0.6 if tasks <= 20 else 0.3)
    axes.set_xlim(1, tasks + 1)
    step = max(1, math.ceil(tasks / 10))
    shown = range(1, tasks + 1, step)
    axes.set_xticks([task + 0.5 for task in shown], [str(task) for task in shown])
    axes.tick_params(axis="x", length=0)


def _shade_finetuning(axes: Axes, series: LossSeries) -> None:
    """Shade the fine-tuning, which is the last part of a task."""
    counts = np.bincount([task for task, _, _ in series.places])
    tuned = np.bincount([task for task, stage, _ in series.places if stage == "finetune"], minlength=len(counts))
    for task in np.flatnonzero(tuned).tolist():
        axes.axvspan(task + 2 - tuned[task] / counts[task], task + 2, color="0.9", linewidth=0, zorder=0)
