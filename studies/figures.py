"""Draws the figures of docs/evidence.md from studies/records: `python studies/figures.py`.

Each figure contains the checksum of its records, so that a test can check whether it is up to date.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import read_records as records
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cscct.analysis.plots import COLOURS
from cscct.analysis.statistics import AVERAGE
from cscct.reporting.canvas import WIDTH, new_figure, style

IMAGES = Path(__file__).parents[1] / "docs" / "images"
STYLES = {  # label, colour and marker of each add-on
    "": ("without", "#666666", "o"),
    "+cscct": ("with +cscct", COLOURS[1], "s"),
    "+balanced": ("with +balanced", COLOURS[0], "D"),
}


def note_if_empty(axes: Axes) -> None:
    """Write "not measured" into axes without data."""
    if not axes.get_legend_handles_labels()[0]:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#666666")


def differences() -> Figure:
    """Draw the gain of each add-on with its interval, with one panel per regime."""
    figure = new_figure(WIDTH, 2.4)
    panels: Sequence[Axes] = figure.subplots(1, len(records.REGIMES), sharey=True)
    for axes, (name, title) in zip(panels, records.REGIMES.items(), strict=True):
        rows = records.read(name)
        for position, base in enumerate(records.BASES):
            for shift, addon in ((-0.15, "+cscct"), (0.15, "+balanced")):
                gain = records.gain(rows, base + addon, base)
                if gain is None:
                    continue
                label, colour, marker = STYLES[addon]
                several = gain.low is not None and gain.high is not None  # several seeds
                errors = [[gain.mean - gain.low], [gain.high - gain.mean]] if several else None  # type: ignore[operator]
                axes.errorbar(
                    gain.mean,
                    position + shift,
                    xerr=errors,
                    fmt=marker,
                    color=colour,
                    markersize=4,
                    markerfacecolor=colour if several else "white",
                    capsize=2,
                    label=label,
                )
        note_if_empty(axes)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(title)
        axes.set_xlabel("points")
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(records.BASES)), records.BASES)
    panels[0].set_ylim(len(records.BASES) - 0.5, -0.5)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def curves() -> Figure:
    """Draw the accuracy after each task, averaged over seeds, with one row per regime and one panel per base."""
    shown = list(records.REGIMES)[:2]
    figure = new_figure(WIDTH, 2.3 * len(shown))
    grid = figure.subplots(len(shown), len(records.BASES), squeeze=False, sharey="row")
    for name, line in zip(shown, grid, strict=True):
        rows = records.read(name)
        for base, axes in zip(records.BASES, line, strict=True):
            seeds = [records.by_seed(rows, base + addon, AVERAGE).keys() for addon in STYLES]
            common = set.intersection(*map(set, filter(None, seeds))) if any(seeds) else set()
            for addon, (label, colour, marker) in STYLES.items():
                measured = [
                    list(map(float, row["curve"].split()))
                    for row in rows
                    if row["method"] == base + addon and row["seed"] in common
                ]
                if measured:
                    means = [sum(values) / len(values) for values in zip(*measured, strict=True)]
                    row = next(row for row in rows if row["method"] == base + addon)
                    classes = [int(row["B"]) + i * int(row["C"]) for i in range(len(means))]
                    axes.plot(classes, means, color=colour, marker=marker, markersize=3, linewidth=1.2, label=label)
            note_if_empty(axes)
            axes.set_title(f"{base}, {records.REGIMES[name]}")
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
    """Return the checksum of the records that the figures show."""
    files = [records.RECORDS / f"{name}.csv" for name in records.REGIMES]
    parts = [file.read_bytes() for file in files if file.exists()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def path(name: str) -> Path:
    """Return the file of a figure."""
    return IMAGES / f"{name}.svg"


def main() -> None:
    for name, draw in FIGURES.items():
        text = io.StringIO()
        with style():
            FigureCanvasSVG(draw()).print_svg(text, metadata={"Date": None, "Description": f"records {checksum()}"})
        path(name).write_text(text.getvalue())


if __name__ == "__main__":
    main()
