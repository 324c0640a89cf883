"""Files with a table or figure of the paper and our numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..analysis.load import read_runs
from ..analysis.measures import accuracy_curve
from ..analysis.plots import COLOURS, draw_curves
from ..jsontext import to_json
from ..reporting.canvas import WIDTH, FigureWriter, ReportFigure, legend_below, new_figure, style
from ..reporting.figures import log_accuracy
from ..reporting.tsne import embed_runs, feature_map
from ..storage import write_text
from ..studies.plan import PlannedRun
from .cells import VARIANTS, Cell, PaperResult, Request
from .comparison import PublishedComparison, as_dicts, compare_with_published, to_csv
from .scales import describe_scale

Cells = Sequence[tuple[Cell, PlannedRun]]
BASES = ("icarl", "lucir", "podnet")


def write_result_files(
    paper_result: PaperResult, request: Request, cells: Cells, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Write `table.json`, `table.csv` and, for a figure of the paper, our version of it.

    Args:
        paper_result: Table or figure.
        request: How it was reproduced.
        cells: Its cells with their runs.
        folder: Where the files are written.

    Returns:
        The content of table.json, and the names of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = compare_with_published(cells)
    answer = {
        "result": paper_result.name,
        "title": paper_result.title,
        "scale": request.scale,
        "scale_in_words": describe_scale(request.scale),
        "recipe": request.recipe,
        "order": request.order or "as the recipe has it",
        "cells": as_dicts(rows, request.scale),
    }
    write_text(folder / "table.json", to_json(answer, indent=1) + "\n")
    write_text(folder / "table.csv", to_csv(as_dicts(rows, request.scale)))
    files = ["table.json", "table.csv"]
    picture = _picture(paper_result, request, rows, cells)
    if picture is not None:
        FigureWriter(folder).write(picture)
        files += [f"{picture.name}.{kind}" for kind in ("png", "svg", "csv")]
    return answer, files


def _picture(
    paper_result: PaperResult, request: Request, rows: Sequence[PublishedComparison], cells: Cells
) -> ReportFigure | None:
    if not all(row.row.group.runs for row in rows):
        return None  # some cell has no finished run
    if paper_result.shows == "apt-act":
        return apt_act(rows, request)
    if paper_result.shows == "phases":
        return phases(rows, request)
    if paper_result.shows == "tsne":
        first = {cell.method: planned for cell, planned in reversed(cells)}
        runs = read_runs([first[method].folder.path for method in ("lucir", "lucir+csc")], lambda _: None)
        return feature_map(embed_runs(list(zip(("lucir", "lucir+csc"), runs, strict=True))))
    return None


def apt_act(rows: Sequence[PublishedComparison], request: Request) -> ReportFigure:
    """Draw bar charts of the accuracy on previous tasks and on the current task."""
    columns = list(dict.fromkeys((row.cell.B, row.cell.C) for row in rows))
    table: list[list[Any]] = [["metric", "method", "B", "C", "mean", "sd"]]
    with style():
        figure = new_figure(WIDTH, 3.2)
        panels = figure.subplots(1, 2, sharex=True)
        titles = {"apt": "APT: previous tasks (stability)", "act": "ACT: current task (plasticity)"}
        for axes, (metric, title) in zip(panels, titles.items(), strict=True):
            for i, variant in enumerate(VARIANTS):
                for x, column in enumerate(columns):
                    row = next(r for r in rows if column == (r.cell.B, r.cell.C) and r.cell.variant == variant)
                    spread = row.row.metrics[metric]
                    if spread is None:
                        continue
                    settings = row.settings
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
    settings = next(row.settings for row in rows if column == (row.cell.B, row.cell.C))
    return f"B={settings.protocol.base}\nC={settings.protocol.step}"


def phases(rows: Sequence[PublishedComparison], request: Request) -> ReportFigure:
    """Draw the accuracy after each task, one panel per task size, with a logarithmic accuracy axis as in the paper."""
    steps = sorted({row.cell.C for row in rows})
    table: list[list[Any]] = [["method", "C", "classes_seen", "mean", "sd"]]
    with style():
        figure = new_figure(WIDTH, 3.4)
        panels = figure.subplots(1, len(steps), squeeze=False)[0]
        for axes, step in zip(panels, steps, strict=True):
            ours = [row for row in rows if step == row.cell.C]
            curves = [accuracy_curve(row.row.group.runs, row.settings.method) for row in ours]
            draw_curves(axes, curves, [_look(row.cell) for row in ours])
            for row, curve in zip(ours, curves, strict=True):
                table += [[row.settings.method, row.settings.protocol.step, *point] for point in curve.points()]
            classes = ours[0].settings.protocol.step
            axes.set_title(f"{classes} class{'es' if classes != 1 else ''} a task")
            if axes is not panels[0]:
                axes.set_ylabel("")
            log_accuracy(axes)
        legend_below(figure, panels[0].get_lines(), [row.settings.method for row in rows if steps[0] == row.cell.C])
    about = f"Accuracy after each task with equal tasks, mean of {_seeds(rows)}; scale {request.scale}"
    return ReportFigure("phases", figure, table, f"Curves. {about}.", about)


def _look(cell: Cell) -> dict[str, Any]:
    """Return colour and line style of a method: a colour for each base, dashed without add-ons."""
    bare = cell.variant == "base"
    line = {"linestyle": "--" if bare else "-", "linewidth": 1.1 if bare else 1.6}
    return {"color": COLOURS[BASES.index(cell.base)], **line}


def _seeds(rows: Sequence[PublishedComparison]) -> str:
    counts = sorted({len(row.row.group.runs) for row in rows})
    return (
        f"{counts[0]} seed{'s' if counts != [1] else ''}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    )
