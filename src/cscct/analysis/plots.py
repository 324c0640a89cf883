"""Plots of accuracy: curves over tasks and bars with confidence intervals."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..storage import write_bytes
from .groups import Group
from .load import read_run
from .measures import AccuracyCurve, accuracy_curve
from .statistics import METRICS, SummaryRow, half_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

# Colours of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")
MAX_MARKERS = 30  # markers of more points than this would hide the line


def draw_curves(axes: Axes, curves: Sequence[AccuracyCurve], styles: Sequence[Mapping[str, Any]] = ()) -> list[Line2D]:
    """Draw the accuracy on all classes seen so far: mean over seeds, and a band of one standard deviation.

    Args:
        axes: Axes to draw into.
        curves: The curves.
        styles: Options of `Axes.plot` for each curve; chosen automatically by default.

    Returns:
        The line of each curve.
    """
    lines: list[Line2D] = []
    for i, curve in enumerate(curves):
        style = {"linewidth": 1.4, "markersize": 4, **styles[i]} if styles else line_style(i, len(curve.seen))
        lines += axes.plot(curve.seen, curve.mean, label=curve.label, **style)
        if curve.sd is not None:
            band = (curve.mean - curve.sd, curve.mean + curve.sd)
            axes.fill_between(curve.seen, *band, color=lines[-1].get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="classes seen", ylabel="accuracy on all classes seen (%)")
    axes.grid(True, alpha=0.3)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 100.5))
    return lines


def line_style(index: int, points: int = 0) -> dict[str, Any]:
    """Return colour, line and marker of a curve. The first 32 styles are distinct.

    Args:
        index: Index of the curve.
        points: Number of its points. Long curves have no markers.
    """
    return {
        "markersize": 4,
        "linewidth": 1.4,
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index // len(COLOURS) % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)] if points <= MAX_MARKERS else "",
    }


def draw_bars(axes: Axes, rows: Sequence[SummaryRow], metric: str) -> None:
    """Draw a horizontal bar for each group with a finished run: mean over seeds, and its 95 % confidence interval.

    Args:
        axes: Axes to draw into.
        rows: Results of the groups.
        metric: Key of `SummaryRow.metrics`.
    """
    values = [(row.group, spread) for row in rows if (spread := row.metrics[metric])]
    for i, (group, spread) in enumerate(values):
        half = half_interval(spread.deviation, len(group.runs))
        axes.barh(i, spread.mean, 0.6, color=COLOURS[0], xerr=half, error_kw={"capsize": 3, "lw": 1})
        axes.text(1.01, i, f"{spread.mean:.1f}", transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(range(len(values)), [group.label_with_prediction for group, _ in values], parse_math=False)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlabel(f"{metric.replace('_', ' ')} (%), 95 % confidence interval")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    low, high = axes.get_xlim()
    axes.set_xlim(low if any(spread.mean < 0 for _, spread in values) else 0, min(high, 100))


def new_axes(height: float = 4.0) -> Axes:
    """Return the axes of a new pyplot figure, which notebooks display."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, height), layout="constrained")[1]


def save_curves(groups: Sequence[Group], title: str, path: Path) -> None:
    """Save the curves of the groups that have finished runs as a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    draw_curves(axes, group_curves(groups))
    axes.set_title(title, parse_math=False)
    axes.legend(frameon=False)
    png = io.BytesIO()
    figure.savefig(png, dpi=150, format="png")
    write_bytes(path, png.getvalue())


def group_curves(groups: Sequence[Group]) -> list[AccuracyCurve]:
    """Return the accuracy curve of each group that has a finished run."""
    return [accuracy_curve(group.runs, group.label) for group in groups if group.runs]


def plot_rows(rows: Sequence[SummaryRow], kind: str, metric: str, ax: Axes | None) -> Axes:
    """See `ResultsTable.plot`."""
    for name, value, known in (("kind", kind, ("curves", "bars")), ("metric", metric, METRICS)):
        if value not in known:
            raise UserError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}.")
    if kind == "bars":
        ax = new_axes(1.2 + 0.35 * len(rows)) if ax is None else ax
        draw_bars(ax, rows, metric)
        return ax
    ax = new_axes() if ax is None else ax
    draw_curves(ax, group_curves([row.group for row in rows]))
    ax.legend(frameon=False)
    return ax


def plot_run(path: Path, ax: Axes | None = None) -> Axes:
    """Draw the accuracy curve of a run into `ax`, by default into a new figure.

    Returns:
        The axes.
    """
    ax = new_axes() if ax is None else ax
    run = read_run(path)
    draw_curves(ax, [accuracy_curve([run], run.method)])
    ax.legend(frameon=False)
    return ax
