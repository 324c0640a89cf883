"""Draws the pictures of docs/evidence.md from the files in studies/records: `python studies/figures.py`.

Each picture holds the checksum of the records that it shows, so that a test can tell whether it is up to date.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import tables
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cscct.analysis.statistics import AVERAGE
from cscct.report.canvas import WIDTH, new_figure, style
from cscct.report.curves import COLOURS

IMAGES = tables.ROOT / "docs" / "images"
LOOKS = {
    "": ("without", "#666666", "o"),
    "+cscct": ("with +cscct", COLOURS[1], "s"),
    "+balanced": ("with +balanced", COLOURS[0], "D"),
}


def note_if_empty(axes: Axes) -> None:
    if not axes.get_legend_handles_labels()[0]:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#666666")


def differences() -> Figure:
    """What each addition changes, with intervals: a panel for each regime."""
    figure = new_figure(WIDTH, 2.4)
    panels: Sequence[Axes] = figure.subplots(1, len(tables.REGIMES), sharey=True)
    for axes, (name, title) in zip(panels, tables.REGIMES.items(), strict=True):
        rows = tables.read(name)
        for place, base in enumerate(tables.BASES):
            for shift, addition in ((-0.15, "+cscct"), (0.15, "+balanced")):
                found = tables.gain(rows, base + addition, base)
                if found is None:
                    continue
                label, colour, marker = LOOKS[addition]
                known = found.low is not None and found.high is not None
                reach = [[found.mean - found.low], [found.high - found.mean]] if known else None  # type: ignore[operator]
                axes.errorbar(
                    found.mean,
                    place + shift,
                    xerr=reach,
                    fmt=marker,
                    color=colour,
                    markersize=4,
                    markerfacecolor=colour if known else "white",  # one seed
                    capsize=2,
                    label=label,
                )
        note_if_empty(axes)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(title)
        axes.set_xlabel("points")
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(tables.BASES)), tables.BASES)
    panels[0].set_ylim(len(tables.BASES) - 0.5, -0.5)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def curves() -> Figure:
    """Accuracy after each task, mean over seeds: a row for each regime, a panel for each base."""
    shown = list(tables.REGIMES)[:2]
    figure = new_figure(WIDTH, 2.3 * len(shown))
    grid = figure.subplots(len(shown), len(tables.BASES), squeeze=False, sharey="row")
    for name, line in zip(shown, grid, strict=True):
        rows = tables.read(name)
        for base, axes in zip(tables.BASES, line, strict=True):
            seeds = [tables.by_seed(rows, base + addition, AVERAGE).keys() for addition in LOOKS]
            common = set.intersection(*map(set, filter(None, seeds))) if any(seeds) else set()
            for addition, (label, colour, marker) in LOOKS.items():
                found = [
                    list(map(float, row["curve"].split()))
                    for row in rows
                    if row["method"] == base + addition and row["seed"] in common
                ]
                if found:
                    means = [sum(values) / len(values) for values in zip(*found, strict=True)]
                    row = next(row for row in rows if row["method"] == base + addition)
                    classes = [int(row["B"]) + i * int(row["C"]) for i in range(len(means))]
                    axes.plot(classes, means, color=colour, marker=marker, markersize=3, linewidth=1.2, label=label)
            note_if_empty(axes)
            axes.set_title(f"{base}, {tables.REGIMES[name]}")
            axes.grid(alpha=0.3)
            axes.set_xlabel("classes seen")
        line[0].set_ylabel("accuracy in percent")
    handles = {
        label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {"evidence-differences": differences, "evidence-curves": curves}


def checksum() -> str:
    """Of the records that the pictures show."""
    files = [tables.RECORDS / f"{name}.csv" for name in tables.REGIMES]
    parts = [file.read_bytes() for file in files if file.exists()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def path(name: str) -> Path:
    return IMAGES / f"{name}.svg"


def main() -> None:
    for name, draw in FIGURES.items():
        text = io.StringIO()
        with style():
            FigureCanvasSVG(draw()).print_svg(text, metadata={"Date": None, "Description": f"records {checksum()}"})
        path(name).write_text(text.getvalue())


if __name__ == "__main__":
    main()
