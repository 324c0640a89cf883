"""A table or figure of the paper with our numbers, as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..analysis.load import read_runs
from ..analysis.measures import accuracy_curve
from ..report.canvas import WIDTH, FigureWriter, ReportFigure, legend_below, new_figure, style
from ..report.curves import COLOURS, draw_curves
from ..report.figures import log_accuracy
from ..report.tsne import feature_map
from ..runs.files import write_text
from ..studies.plan import PlannedRun
from .cells import VARIANTS, Cell, Exhibit, Request
from .comparison import PublishedComparison, as_dicts, compare_with_published, to_csv
from .scales import in_words

Cells = Sequence[tuple[Cell, PlannedRun]]
BASES = ("icarl", "lucir", "podnet")


def write_exhibit(exhibit: Exhibit, request: Request, cells: Cells, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """`table.json`, `table.csv` and, for a figure of the paper, ours; the answer, and the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = compare_with_published(cells)
    answer = {
        "exhibit": exhibit.name,
        "title": exhibit.title,
        "scale": request.scale,
        "scale_in_words": in_words(request.scale),
        "recipe": request.recipe,
        "order": request.order or "as the recipe has it",
        "cells": as_dicts(rows, request.scale),
    }
    write_text(folder / "table.json", json.dumps(answer, indent=1) + "\n")
    write_text(folder / "table.csv", to_csv(as_dicts(rows, request.scale)))
    files = ["table.json", "table.csv"]
    picture = _picture(exhibit, request, rows, cells)
    if picture is not None:
        FigureWriter(folder).write(picture)
        files += [f"{picture.name}.{kind}" for kind in ("png", "svg", "csv")]
    return answer, files


def _picture(
    exhibit: Exhibit, request: Request, rows: Sequence[PublishedComparison], cells: Cells
) -> ReportFigure | None:
    if not all(one.row.group.runs for one in rows):
        return None  # some cell has no finished run
    if exhibit.shows == "apt-act":
        return apt_act(rows, request)
    if exhibit.shows == "phases":
        return phases(rows, request)
    if exhibit.shows == "tsne":
        first = {cell.method: planned for cell, planned in reversed(cells)}
        runs = read_runs([first[method].folder.path for method in ("lucir", "lucir+csc")], lambda _: None)
        return feature_map(list(zip(("lucir", "lucir+csc"), runs, strict=True)))
    return None


def apt_act(rows: Sequence[PublishedComparison], request: Request) -> ReportFigure:
    """Two groups of bars: how well earlier tasks are kept, and how well the current one is learned."""
    columns = list(dict.fromkeys((one.cell.B, one.cell.C) for one in rows))
    table: list[list[Any]] = [["metric", "method", "B", "C", "mean", "sd"]]
    with style():
        figure = new_figure(WIDTH, 3.2)
        panels = figure.subplots(1, 2, sharex=True)
        titles = {"apt": "APT: previous tasks (stability)", "act": "ACT: current task (plasticity)"}
        for axes, (metric, title) in zip(panels, titles.items(), strict=True):
            for i, variant in enumerate(VARIANTS):
                for x, column in enumerate(columns):
                    one = next(r for r in rows if column == (r.cell.B, r.cell.C) and r.cell.variant == variant)
                    spread = one.row.metrics[metric]
                    if spread is None:
                        continue
                    settings = one.settings
                    protocol = [settings.protocol.base, settings.protocol.step]
                    table.append([metric, settings.method, *protocol, spread.mean, spread.deviation])
                    axes.bar(
                        x + (i - 1.5) * 0.2, spread.mean, 0.2, color=COLOURS[i], yerr=spread.deviation, capsize=1.5
                    )
            axes.set_title(title)
            axes.set_ylabel("accuracy (%)")
            axes.set_xticks(range(len(columns)), [_ours(rows, column) for column in columns], fontsize=8)
        names = ["LUCIR", "+ CSC", "+ CT", "+ CSCCT"]
        legend_below(figure, [panels[0].patches[i * len(columns)] for i in range(4)], names)
    seeds = _seeds(rows)
    about = f"LUCIR on CIFAR-100 with CSC and CT alone and together; scale {request.scale}, {seeds}"
    return ReportFigure("apt-act", figure, table, f"Bars of APT and ACT. {about}.", about)


def _ours(rows: Sequence[PublishedComparison], column: tuple[int, int]) -> str:
    settings = next(one.settings for one in rows if column == (one.cell.B, one.cell.C))
    return f"B={settings.protocol.base}\nC={settings.protocol.step}"


def phases(rows: Sequence[PublishedComparison], request: Request) -> ReportFigure:
    """Accuracy after each task, a panel for each task size, accuracy on a logarithmic axis as in the paper."""
    steps = sorted({one.cell.C for one in rows})
    table: list[list[Any]] = [["method", "C", "classes_seen", "mean", "sd"]]
    with style():
        figure = new_figure(WIDTH, 3.4)
        panels = figure.subplots(1, len(steps), squeeze=False)[0]
        for axes, step in zip(panels, steps, strict=True):
            ours = [one for one in rows if step == one.cell.C]
            curves = [accuracy_curve(one.row.group.runs, one.settings.method) for one in ours]
            draw_curves(axes, curves, [_look(one.cell) for one in ours])
            for one, curve in zip(ours, curves, strict=True):
                table += [[one.settings.method, one.settings.protocol.step, *point] for point in curve.points()]
            classes = ours[0].settings.protocol.step
            axes.set_title(f"{classes} class{'es' if classes != 1 else ''} a task")
            if axes is not panels[0]:
                axes.set_ylabel("")
            log_accuracy(axes)
        legend_below(figure, panels[0].get_lines(), [one.settings.method for one in rows if steps[0] == one.cell.C])
    about = f"Accuracy after each task with equal tasks, mean of {_seeds(rows)}; scale {request.scale}"
    return ReportFigure("phases", figure, table, f"Curves. {about}.", about)


def _look(cell: Cell) -> dict[str, Any]:
    """A colour for each base; dashes where it is bare."""
    bare = cell.variant == "base"
    line = {"linestyle": "--" if bare else "-", "linewidth": 1.1 if bare else 1.6}
    return {"color": COLOURS[BASES.index(cell.base)], **line}


def _seeds(rows: Sequence[PublishedComparison]) -> str:
    counts = sorted({len(one.row.group.runs) for one in rows})
    return (
        f"{counts[0]} seed{'s' if counts != [1] else ''}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    )
