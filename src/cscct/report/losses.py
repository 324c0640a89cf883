"""Parts of the loss over time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..analysis.groups import Group
from ..analysis.measures import LossSeries
from .canvas import WIDTH, ReportFigure, new_figure, plain, style
from .curves import COLOURS

BAND = 500  # points of a band: more are not seen, but weigh on the page


def loss_parts(name: str, group: Group, series: LossSeries) -> ReportFigure:
    """A panel for each part: their scales differ, and some are negative."""
    tasks = len({task for task, _, _ in series.places})
    seeds = len(group.runs)
    how = f"Mean over {seeds} seeds, band of one standard deviation." if seeds > 1 else f"Seed {group.seeds[0]}."
    return ReportFigure(
        name,
        _draw(series),
        _table(series),
        f"Curves of {', '.join(series.terms)} over {len(series.places)} epochs and {tasks} tasks of {group.label}.",
        f"{group.label}. {how}",
    )


def _table(series: LossSeries) -> list[list[Any]]:
    table: list[list[Any]] = [["task", "stage", "epoch"]]
    table[0] += [f"{term}_{part}" for term in series.terms for part in ("mean", "sd")]
    for (task, stage, epoch), mean, sd in zip(series.places, series.mean.tolist(), series.sd.tolist(), strict=True):
        table.append([task + 1, stage, epoch + 1, *(cell for pair in zip(mean, sd, strict=True) for cell in pair)])
    return table


def _draw(series: LossSeries) -> Figure:
    parts = len(series.terms)
    columns = min(3, parts)
    rows = math.ceil(parts / columns)
    with style():
        figure = new_figure(WIDTH, 0.5 + 1.6 * rows)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for i, axes in enumerate(panels.flat):
            if i >= parts:
                axes.set_axis_off()
                continue
            _curve(axes, series, i)
            if i + columns >= parts:  # nothing below it
                axes.set_xlabel("epoch, tasks in a row")
                axes.tick_params(labelbottom=True)
    return figure


def _curve(axes: Axes, series: LossSeries, i: int) -> None:
    x, mean, sd = np.arange(1, len(series.places) + 1), series.mean[:, i], series.sd[:, i]
    axes.plot(x, mean, color=COLOURS[0], linewidth=1.1, marker="." if len(x) <= 40 else "", markersize=4)
    few = slice(None, None, -(-len(x) // BAND))
    axes.fill_between(x[few], (mean - sd)[few], (mean + sd)[few], color=COLOURS[0], alpha=0.2, linewidth=0)
    starts = [p for p in range(1, len(x)) if series.places[p][0] != series.places[p - 1][0]]
    for start in starts:
        axes.axvline(start + 0.5, color="0.65", linewidth=0.6 if len(starts) < 20 else 0.3)
    _shade_finetuning(axes, series)
    axes.set_title(plain(series.terms[i]), loc="left")
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _shade_finetuning(axes: Axes, series: LossSeries) -> None:
    tuned = np.array([stage == "finetune" for _, stage, _ in series.places])
    if tuned.any():
        x = np.repeat(np.arange(len(tuned) + 1) + 0.5, 2)[1:-1]
        axes.fill_between(
            x, 0, 1, where=np.repeat(tuned, 2), transform=axes.get_xaxis_transform(), color="0.9", linewidth=0, zorder=0
        )
