"""Accuracy curves: the one drawing of them, for comparisons, reports, the paper's figures and single runs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis.groups import Group
from ..analysis.load import read_run
from ..analysis.measures import AccuracyCurve, accuracy_curve
from ..runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

# Okabe and Ito's colours: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")
MOST_MARKED = 30  # points; of more the markers would hide the line


def draw_curves(axes: Axes, curves: Sequence[AccuracyCurve], looks: Sequence[Mapping[str, Any]] = ()) -> list[Line2D]:
    """Accuracy on all classes seen after each task: the mean over seeds, and a band of one standard deviation.

    looks: for each curve options of `Axes.plot`; without them colours, lines and markers are chosen. Returns the lines.
    """
    lines: list[Line2D] = []
    for i, curve in enumerate(curves):
        look = {"linewidth": 1.4, "markersize": 4, **looks[i]} if looks else line_style(i, len(curve.seen))
        lines += axes.plot(curve.seen, curve.mean, label=curve.label, **look)
        if curve.sd is not None:
            band = (curve.mean - curve.sd, curve.mean + curve.sd)
            axes.fill_between(curve.seen, *band, color=lines[-1].get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="classes seen", ylabel="accuracy on all classes seen (%)")
    axes.grid(True, alpha=0.3)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 100.5))
    return lines


def line_style(number: int, points: int = 0) -> dict[str, Any]:
    """Colour, line and marker of one of several curves: 32 that differ. points: many of them need no markers."""
    return {
        "markersize": 4,
        "linewidth": 1.4,
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number // len(COLOURS) % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)] if points <= MOST_MARKED else "",
    }


def save_curves(groups: Sequence[Group], title: str, path: Path) -> None:
    """The curves of these groups as a picture; those without a finished run are left out."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    draw_curves(axes, [accuracy_curve(group.runs, group.label) for group in groups if group.runs])
    axes.set_title(title, parse_math=False)
    axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format="png")
    write_bytes(path, picture.getvalue())


def plot_run(path: Path, ax: Axes | None = None) -> Axes:
    """The curve of one run, into `ax` or a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt  # so that it can be shown

        ax = plt.subplots(figsize=(6, 4), layout="constrained")[1]
    run = read_run(path)
    draw_curves(ax, [accuracy_curve([run], run.method)])
    ax.legend(frameon=False)
    return ax
