"""Figures with their data, caption and alternative text, their layouts, and the writer of their files."""

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
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from ..analysis.tables import csv_text
from ..storage import write_bytes, write_text

WIDTH = 7.0  # inches: text width of a page
DPI = 200
LETTER = 0.068  # inches: average width of an 8-point letter
LINE = 0.17  # inches: height of a line of the legend
MAX_NAMES = 30  # class names along an axis


@dataclass(frozen=True)
class Layout:
    """Size of figures and their text.

    Attributes:
        width: Width in inches. Maps may be narrower.
        height: Height of a plot without its legend, in inches.
        font_size: Font size in points. Tick labels and legends have 8 points in every layout.
        panels: Maximum number of loss terms in a row.
        bars: Maximum number of bars in a figure.
    """

    width: float
    height: float
    font_size: float
    panels: int
    bars: int

    def map_side(self, inches: float) -> float:
        """Return the side of a map: `inches`, if axis labels and colour bar fit next to it."""
        return min(inches, self.width - 1.6)


PAGE = Layout(WIDTH, 3.2, 9, panels=3, bars=200)
COLUMN = Layout(3.35, 2.3, 8, panels=2, bars=50)  # a column of a paper, or a phone


@dataclass(frozen=True)
class ReportFigure:
    """A figure, the data that it shows and its text.

    Attributes:
        name: Name of its files, without suffix.
        figure: The figure.
        table: The data; the first row has the column names.
        alt: Alternative text: the content in words.
        caption: Explanation of axes, lines and colours.
    """

    name: str
    figure: Figure
    table: list[list[Any]]
    alt: str
    caption: str

    @property
    def width(self) -> float:
        """Width in inches."""
        return float(self.figure.get_figwidth())


@dataclass
class FigureWriter:
    """Writes figures and their data to a folder.

    Attributes:
        folder: Folder of the files.
        pdf: Whether figures in column width are written as PDF.
        missing_glyphs: Whether a text has contained a character that no installed font has.
        names: Names given to files, in lower case.
    """

    folder: Path
    pdf: bool = False
    missing_glyphs: bool = False
    names: set[str] = field(default_factory=set)

    def write(self, picture: ReportFigure, narrow: ReportFigure | None = None) -> tuple[str, str]:
        """Write the files of a figure, or none of them if it cannot be drawn.

        Args:
            picture: The figure, written as PNG, SVG and CSV.
            narrow: The same figure with the layout `COLUMN`, written as PDF if `pdf` is set.

        Returns:
            The SVG of both figures; empty without `narrow`.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            png, svg = _png(picture.figure, PAGE), _svg(picture.figure, PAGE)
            narrow_svg = _svg(narrow.figure, COLUMN) if narrow else ""
            pdf = _pdf(narrow.figure, COLUMN) if narrow and self.pdf else None
        self.missing_glyphs |= any("missing from font" in str(warning.message) for warning in caught)
        write_bytes(self.folder / f"{picture.name}.png", png)
        write_text(self.folder / f"{picture.name}.svg", svg)
        if pdf is not None:
            write_bytes(self.folder / f"{picture.name}.pdf", pdf)
        self.write_table(picture.name, picture.table)
        return svg, narrow_svg

    def write_table(self, name: str, table: Sequence[Sequence[Any]]) -> None:
        """Write a CSV file."""
        write_text(self.folder / f"{name}.csv", csv_text(table))

    def name(self, kind: str, label: str) -> str:
        """Return a name for the files of a group's figure, distinct also on file systems that ignore case."""
        plain = f"{kind}-" + re.sub(r"[^\w+=.]+", "-", label, flags=re.ASCII).strip("-.")[:80]
        free, count = plain, 1
        while free.lower() in self.names:
            count += 1
            free = f"{plain}-{count}"
        self.names.add(free.lower())
        return free


# Figure.savefig would draw everything twice and compute the layout for each format, so the canvases are used directly.
def _png(figure: Figure, layout: Layout) -> bytes:
    file = io.BytesIO()
    with style(layout):
        figure.set_dpi(DPI)
        FigureCanvasAgg(figure).print_png(file, pil_kwargs={"compress_level": 4})
        figure.set_layout_engine("none")
    return file.getvalue()


def _svg(figure: Figure, layout: Layout) -> str:
    file = io.StringIO()
    with style(layout):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return file.getvalue()


def _pdf(figure: Figure, layout: Layout) -> bytes:
    """Return the figure as vector graphics, even where the SVG contains points as an image to save space."""
    file = io.BytesIO()
    for artist in figure.findobj(lambda artist: bool(artist.get_rasterized())):
        artist.set_rasterized(False)
    with style(layout):
        FigureCanvasPdf(figure).print_pdf(file, metadata={"CreationDate": None})
    return file.getvalue()


def style(layout: Layout = PAGE) -> Any:
    """Return a context with the matplotlib settings of a layout."""
    installed = {entry.name for entry in matplotlib.font_manager.fontManager.ttflist}
    further = ("Noto Sans CJK SC", "Noto Sans", "Noto Sans Arabic", "Noto Sans Devanagari", "Arial Unicode MS")
    rc: Any = {  # the declared type of rc_context lists every name
        "font.family": ["DejaVu Sans", *(font for font in further if font in installed)],
        "font.size": layout.font_size,
        "axes.titlesize": layout.font_size,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid.axis": "both",
        "grid.alpha": 0.3,
        "svg.hashsalt": "cscct",  # reports of the same runs are identical
        "pdf.fonttype": 42,  # TrueType: many publishers reject Type 3 fonts
    }
    return matplotlib.rc_context(rc)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, whose parts are arranged without overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def short(name: str, length: int = 24) -> str:
    """Return a name on one line, truncated to a length."""
    text = " ".join(name.split()) or "(no name)"
    return text if len(text) <= length else text[: length - 1] + "…"


def plain(text: str) -> str:
    """Return text in which matplotlib sees no formula between dollar signs."""
    return text.replace("$", r"\$")


def names_fit(count: int, inches: float) -> bool:
    """Return whether names of 8 points fit along an axis of this length."""
    return count <= min(MAX_NAMES, inches / LINE)


def named_ticks(axes: Axes, axis: str, names: Sequence[str], inches: float, offset: int = 0) -> None:
    """Label an axis with class names if they fit, else with positions of classes in the order of learning.

    Args:
        axes: Axes to label.
        axis: `"x"` or `"y"`.
        names: Class names.
        inches: Length of the axis.
        offset: Number of classes learned before the first name.
    """
    set_ticks = {"x": axes.set_xticks, "y": axes.set_yticks}[axis]
    if names_fit(len(names), inches):
        rotation: dict[str, Any] = {"rotation": 90} if axis == "x" and max(map(len, names)) > 2 else {}
        set_ticks(range(len(names)), [short(name) for name in names], parse_math=False, fontsize=8, **rotation)
        return
    most = min(12, int(inches / 0.3))
    step = next(step for step in (5, 10, 20, 50, 100, 200, 500, 1000, 10**6) if len(names) / step <= most)
    places = [place for place in range(len(names)) if (place + offset + 1) % step == 0]
    set_ticks(places, [str(place + offset + 1) for place in places], fontsize=8)


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> Legend:
    """Add a legend below the axes. Matplotlib omits labels with a leading underscore, so texts are set afterwards."""
    lines = wrapped(figure.get_figwidth(), labels)
    legend = figure.legend(
        handles,
        ["-"] * len(labels),
        loc="outside lower center",
        ncols=legend_columns(figure.get_figwidth(), labels),
        frameon=False,
        fontsize=8,
        handlelength=2.6,  # long enough for dashes
    )
    for text, label in zip(legend.get_texts(), lines, strict=True):
        text.set_parse_math(False)
        text.set_text(label)
    return legend


def wrapped(width: float, labels: Sequence[str]) -> list[str]:
    """Return labels broken into lines that fit the width of a figure."""
    return ["\n".join(textwrap.wrap(label, int((width - 0.8) / LETTER)) or ["-"]) for label in labels]


def legend_columns(width: float, labels: Sequence[str]) -> int:
    """Return the number of columns of a legend that fit the width of a figure."""
    lines = [line for label in wrapped(width, labels) for line in label.split("\n")]
    widest = max(LETTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in lines)
    return max(1, min(len(labels), int(width / (0.6 + widest))))


def legend_height(width: float, labels: Sequence[str]) -> float:
    """Return the height of a legend below the axes, in inches."""
    lines = sum(label.count("\n") + 1 for label in wrapped(width, labels))
    return 0.1 + LINE * math.ceil(lines / legend_columns(width, labels))


def boundaries(sizes: Sequence[int]) -> list[int]:
    """Return the positions at which tasks begin, except the first, counted in classes."""
    return [int(place) for place in np.cumsum(sizes)[:-1]]
