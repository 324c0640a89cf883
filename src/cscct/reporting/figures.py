"""Curves and bars: accuracy over tasks, APT and ACT, forgetting of each class."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..analysis.groups import Group
from ..analysis.load import Array
from ..analysis.measures import accuracy_curve
from ..analysis.plots import COLOURS, draw_curves
from ..analysis.statistics import SummaryRow
from .canvas import COLUMN, PAGE, Layout, ReportFigure, legend_below, legend_height, new_figure, short, style

ROWS = 50  # bars in a column of a figure
LIMITS = {PAGE: "on a page", COLUMN: "in a column"}  # layouts that limit the number of bars
ERROR_BAR = "± one standard deviation over seeds"


def accuracy_curves(name: str, groups: Sequence[Group], log_axis: bool, layout: Layout = PAGE) -> ReportFigure:
    """Draw the accuracy on all classes seen so far against their number, a curve for each group of one dataset."""
    curves = [accuracy_curve(group.runs, group.label) for group in groups]
    table: list[list[Any]] = [["group", "task", "classes_seen", "accuracy_mean", "accuracy_sd", "seeds"]]
    for group, curve in zip(groups, curves, strict=True):
        table += [[group.label, t + 1, *point, curve.seeds] for t, point in enumerate(curve.points())]
    with style(layout):
        labels = [group.label_with_prediction for group in groups]
        figure = new_figure(layout.width, layout.height + legend_height(layout.width, labels))
        axes = figure.add_subplot()
        handles = draw_curves(axes, curves)
        if log_axis:
            log_accuracy(axes)
        legend_below(figure, handles, labels)
    ends = "; ".join(
        f"{group.label} ends at {curve.mean[-1]:.1f} %" for group, curve in zip(groups[:8], curves[:8], strict=True)
    )
    band = (
        " Lines are means over seeds, bands ± one standard deviation." if any(len(g.runs) > 1 for g in groups) else ""
    )
    dataset = groups[0].runs[0].settings["dataset"]
    return ReportFigure(
        name,
        figure,
        table,
        f"Curves of the accuracy on all classes seen against their number on {dataset}. {ends}.",
        f"Accuracy on {dataset}. Horizontal: classes seen so far, a point after each task. Vertical: test accuracy on "
        f"all of them{', on a logarithmic axis' if log_axis else ''}.{band}",
    )


def log_accuracy(axes: Axes) -> None:
    """Make the accuracy axis logarithmic, as in the paper's phase-wise curves, with plain numbers."""
    low, high = (max(value, 0.5) for value in axes.dataLim.intervaly)
    axes.set_yscale("log")
    axes.set_ylim(low / 1.08, min(high * 1.08, 104))
    distance, ticks = math.log(max(high / low, 1.01)) / 14, list[float]()
    for tick in (1, 2, 5, 10, 20, 50, 100, 30, 70, 40, 60, 80, 90):  # round numbers first
        if low / 1.08 <= tick <= high * 1.08 and all(abs(math.log(tick / chosen)) > distance for chosen in ticks):
            ticks.append(tick)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def apt_and_act(rows: Sequence[SummaryRow], layout: Layout = PAGE) -> ReportFigure:
    """Draw two bars for each group: accuracy on past tasks and on the current one."""
    names = {"apt": "APT, past tasks", "act": "ACT, current task"}
    table: list[list[Any]] = [["group", "apt_mean", "apt_sd", "act_mean", "act_sd", "seeds"]]
    with style(layout):
        labels = [textwrap.fill(row.group.label_with_prediction, int(4.9 * layout.width)) for row in rows]
        height = max(0.42, *(0.06 + 0.15 * (label.count("\n") + 1) for label in labels))
        figure = new_figure(layout.width, 1.0 + height * max(2, len(rows)))
        axes = figure.add_subplot()
        for i, name in enumerate(names):
            for place, row in enumerate(rows):
                value = row.metrics[name]
                if value is None:
                    continue
                y = place + 0.19 * (2 * i - 1)
                axes.barh(y, value.mean, 0.36, color=COLOURS[i], xerr=value.deviation, error_kw={"capsize": 2, "lw": 1})
                end = value.mean + (value.deviation or 0)
                axes.text(end + 0.8, y, f"{value.mean:.1f}", va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), labels, parse_math=False, fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set(xlabel="accuracy (%)", xlim=(0, 109))
        axes.set_xticks(range(0, 101, 20))
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        seeds = any(value and value.deviation is not None for row in rows for value in row.metrics.values())
        _bar_legend(figure, dict(zip(names.values(), COLOURS, strict=False)), seeds)
    for row in rows:
        cells = [cell for name in names for cell in _cells(row.metrics[name])]
        table.append([row.group.label, *cells, len(row.group.runs)])
    numbers = "; ".join(f"{row[0]}: APT {_number(row[1])}, ACT {_number(row[3])}" for row in table[1:9])
    bars = f" Black lines: {ERROR_BAR}." if seeds else ""
    return ReportFigure(
        "apt-act",
        figure,
        table,
        f"Bars of accuracy on past and current tasks. {numbers}.",
        "Accuracy on past tasks (APT, stability) and on the task just learned (ACT, plasticity), each averaged over "
        f"tasks. Horizontal: accuracy in percent. Vertical: the groups.{bars}",
    )


def _bar_legend(figure: Figure, kinds: Mapping[str, str], seeds: bool) -> None:
    """Add a legend of the colours of bars, and of their error bars if there are several seeds."""
    handles: list[Artist] = [Patch(color=colour) for colour in kinds.values()]
    error_bar = [Line2D([], [], color="black", linewidth=1)] if seeds else []
    legend_below(figure, [*handles, *error_bar], [*kinds, *([ERROR_BAR] if seeds else [])])


def _cells(value: Any) -> list[float | None]:
    return [value.mean, value.deviation] if value else [None, None]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} %"


def forgetting_limits(values: Sequence[tuple[Array, Array]]) -> tuple[float, float]:
    """Return limits of the axis that include zero and all means ± standard deviations."""
    low = min([0.0, *(float(np.nanmin(mean - sd, initial=0)) for mean, sd in values)])
    high = max([1.0, *(float(np.nanmax(mean + sd, initial=0)) for mean, sd in values)])
    return low - 0.03 * (high - low) * (low < 0), high + 0.03 * (high - low)


def forgetting(
    name: str, group: Group, mean: Array, sd: Array, limits: tuple[float, float], layout: Layout = PAGE
) -> ReportFigure:
    """Draw a bar for each class, most forgotten first. Of many classes, both ends are shown."""
    run, seeds = group.comparable[0], len(group.comparable)
    task_of = np.repeat(np.arange(len(run.sizes)), run.sizes)
    order = [int(i) for i in np.argsort(-mean, kind="stable") if not np.isnan(mean[i])]
    table: list[list[Any]] = [["class", "task", "forgetting_mean", "forgetting_sd", "seeds"]]
    for i in order:
        table.append([run.classes[i], int(task_of[i]) + 1, float(mean[i]), float(sd[i]) if seeds > 1 else "", seeds])
    shown = order if len(order) <= layout.bars else order[: layout.bars // 2] + order[-layout.bars // 2 :]
    columns = max(1, math.ceil(len(shown) / ROWS))
    rows = math.ceil(len(shown) / columns)
    with style(layout):
        figure = new_figure(layout.width if columns <= 2 else 2.8 * columns, 1.0 + 0.155 * max(rows, 4))
        for column, axes in enumerate(figure.subplots(1, columns, squeeze=False)[0]):
            ids = shown[column * rows : (column + 1) * rows]
            colours = [COLOURS[0] if task_of[i] == 0 else COLOURS[4] for i in ids]
            _forgetting_bars(axes, [run.classes[i] for i in ids], mean[ids], sd[ids] if seeds > 1 else None, colours)
            axes.set(ylim=(rows - 0.4, -0.6), xlim=limits)
        kinds = {"class of the first task": COLOURS[0], "class of a later task": COLOURS[4]}
        _bar_legend(figure, kinds, seeds > 1)
    cut = [f"{each.bars // 2} at either end {where}" for each, where in LIMITS.items() if len(order) > each.bars]
    about = f" Of {len(order)} classes, the figure shows {' and '.join(cut)}; the CSV file has all." if cut else ""
    bars = f" Black lines: {ERROR_BAR}." if seeds > 1 else ""
    worst = ", ".join(f"{run.classes[i]} {mean[i]:.1f}" for i in order[:3])
    return ReportFigure(
        name,
        figure,
        table,
        f"Bars of forgetting for {len(shown)} classes of {group.label}. Most forgotten: {worst}.",
        f"{group.label}. {group.averaging} Horizontal: forgetting in percentage points. Vertical: classes, most "
        f"forgotten first.{bars}{about}",
    )


def _forgetting_bars(axes: Axes, names: Sequence[str], mean: Array, sd: Array | None, colours: Sequence[str]) -> None:
    axes.barh(range(len(names)), mean, 0.75, color=colours, xerr=sd, error_kw={"lw": 0.8})
    axes.set_yticks(range(len(names)), [short(name, 20) for name in names], fontsize=8, parse_math=False)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("forgetting (percentage points)")
