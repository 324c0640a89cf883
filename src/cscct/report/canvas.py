"""A figure with its data, caption and alt text, and the writer of its PNG, SVG and CSV files."""

from __future__ import annotations

import io
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from ..analysis.tables import csv_text
from ..runs.files import write_bytes, write_text

WIDTH = 7.0  # inches: a page of a paper between its margins
DPI = 200
LETTER = 0.068  # inches: the average width of a letter of 8 points
LINE = 0.17  # inches: the height of a line of the legend
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a formula of a spreadsheet begins
NAMES = 30  # more class names than this do not fit along an axis at a readable size
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid.axis": "both",
    "grid.alpha": 0.3,
    "svg.hashsalt": "cscct",  # the same report has the same bits
}


@dataclass(frozen=True)
class ReportFigure:
    """A figure, the numbers that it shows and the text that goes with it."""

    name: str  # of its files
    figure: Figure
    table: list[list[Any]]  # the numbers; the first row holds the names of the columns
    alt: str  # alternative text: the content in words
    caption: str  # explains the axes, lines and colours


@dataclass
class FigureWriter:
    """Writes figures and their tables to a folder."""

    folder: Path
    missing_glyphs: bool = False  # some name holds a character that no installed font has
    names: set[str] = field(default_factory=set)

    def write(self, picture: ReportFigure) -> str:
        """Writes the files; returns the SVG. A figure that cannot be drawn leaves no file."""
        png, svg = io.BytesIO(), io.StringIO()
        with warnings.catch_warnings(record=True) as heard, style():
            warnings.simplefilter("always")
            # Straight to the canvases: savefig would draw everything twice, and lay it out for each format anew.
            picture.figure.set_dpi(DPI)
            FigureCanvasAgg(picture.figure).print_png(png, pil_kwargs={"compress_level": 4})
            picture.figure.set_layout_engine("none")
            FigureCanvasSVG(picture.figure).print_svg(svg, metadata={"Date": None})
        self.missing_glyphs |= any("missing from font" in str(one.message) for one in heard)
        write_bytes(self.folder / f"{picture.name}.png", png.getvalue())
        write_text(self.folder / f"{picture.name}.svg", svg.getvalue())
        self.write_table(picture.name, picture.table)
        return svg.getvalue()

    def write_table(self, name: str, table: Sequence[Sequence[Any]]) -> None:
        """A CSV file without a figure."""
        write_text(self.folder / f"{name}.csv", csv_text(table))

    def name(self, kind: str, label: str) -> str:
        """A file name for one group's figure, distinct from all others also where case does not count."""
        plain = f"{kind}-" + re.sub(r"[^\w+=.]+", "-", label, flags=re.ASCII).strip("-.")[:80]
        free, count = plain, 1
        while free.lower() in self.names:
            count += 1
            free = f"{plain}-{count}"
        self.names.add(free.lower())
        return free


def style() -> Any:
    """Settings of matplotlib for as long as the context lasts."""
    known = {entry.name for entry in matplotlib.font_manager.fontManager.ttflist}
    further = ("Noto Sans CJK SC", "Noto Sans", "Noto Sans Arabic", "Noto Sans Devanagari", "Arial Unicode MS")
    fonts = ["DejaVu Sans", *(font for font in further if font in known)]
    rc: Any = {**_STYLE, "font.family": fonts}  # its type would list every name there is
    return matplotlib.rc_context(rc)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that arranges its parts without overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def short(name: str, length: int = 24) -> str:
    """A name on one line, cut to a length."""
    text = " ".join(name.split()) or "(no name)"
    return text if len(text) <= length else text[: length - 1] + "…"


def plain(text: str) -> str:
    """Text for matplotlib, which would set what stands between two dollar signs as a formula."""
    return text.replace("$", r"\$")


def named_ticks(axes: Axes, axis: str, names: Sequence[str], offset: int = 0) -> None:
    """Class names along an axis if they fit, else the positions of classes in the order of learning."""
    sides = {"x": axes.set_xticks, "y": axes.set_yticks}
    if len(names) <= NAMES:
        turned: dict[str, Any] = {"rotation": 90} if axis == "x" and max(map(len, names)) > 2 else {}
        sides[axis](range(len(names)), [short(name) for name in names], parse_math=False, fontsize=8, **turned)
        return
    step = next(step for step in (5, 10, 20, 50, 100, 200, 500, 1000, 10**6) if len(names) / step <= 12)
    places = [place for place in range(len(names)) if (place + offset + 1) % step == 0]
    sides[axis](places, [str(place + offset + 1) for place in places], fontsize=8)


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> Legend:
    """A legend under the axes. Texts are set afterwards: matplotlib leaves out labels with a leading underscore."""
    lines = wrapped(figure.get_figwidth(), labels)
    legend = figure.legend(
        handles,
        ["-"] * len(labels),
        loc="outside lower center",
        ncols=legend_columns(figure.get_figwidth(), labels),
        frameon=False,
        fontsize=8,
        handlelength=2.6,  # long enough to show dashes
    )
    for text, label in zip(legend.get_texts(), lines, strict=True):
        text.set_parse_math(False)
        text.set_text(label)
    return legend


def wrapped(width: float, labels: Sequence[str]) -> list[str]:
    """Labels broken into lines that fit the width of a figure."""
    return ["\n".join(textwrap.wrap(label, int((width - 0.8) / LETTER)) or ["-"]) for label in labels]


def legend_columns(width: float, labels: Sequence[str]) -> int:
    """As many as fit."""
    lines = [line for label in wrapped(width, labels) for line in label.split("\n")]
    widest = max(LETTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in lines)
    return max(1, min(len(labels), int(width / (0.6 + widest))))


def legend_height(width: float, labels: Sequence[str]) -> float:
    """Inches that a legend takes below the axes."""
    lines = sum(label.count("\n") + 1 for label in wrapped(width, labels))
    return 0.1 + LINE * math.ceil(lines / legend_columns(width, labels))


def boundaries(sizes: Sequence[int]) -> list[int]:
    """Positions at which a new task begins, counted in classes."""
    return [int(place) for place in np.cumsum(sizes)[:-1]]
