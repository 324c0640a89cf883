"""Print results and plans as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ..analysis.statistics import METRICS
from ..analysis.tables import VALIDATION_HEADER, ResultsTable, format_difference, format_spread
from ..paper.cells import Cell, PaperResult, Request
from ..paper.comparison import PublishedComparison, compare_with_published
from ..paper.scales import describe_scale
from ..progress import clock
from ..studies.plan import PlannedRun, PlanSummary

DETAILS = ("harmonic", "APT", "ACT", "forgetting", VALIDATION_HEADER)  # columns of a second table on a narrow terminal


def print_result(result: dict[str, Any], folder: Path) -> None:
    """Print the result of a run: accuracies after each task and metrics, for each predictor."""
    table = Table(title=f"{result['method']} on {result['dataset']}, seed {result['seed']}", title_justify="left")
    headline = result["headline"]
    mark = {name: f"{name} *" if name == headline else name for name in result["summary"]}
    table.add_column("after task")
    table.add_column("new classes", justify="right")
    for name in mark.values():
        table.add_column(f"{name} (%)", justify="right")
    for entry in result["tasks"]:
        accuracies = (f"{entry['accuracy'][name]:.2f}" for name in mark)
        table.add_row(str(entry["task"] + 1), str(len(entry["classes"])), *accuracies)
    table.add_section()
    for metric in next(iter(result["summary"].values())):
        _add_metric(table, metric, [result["summary"][name][metric] for name in mark])
    if "validation" in result:
        table.add_section()
        for metric in METRICS[:2]:
            values = [result["validation"]["summary"][name][metric] for name in mark]
            _add_metric(table, f"{metric} (validation)", values)
    console = Console(highlight=False)
    console.print(table)
    console.print("* predictor that the method is evaluated with", markup=False)
    print(f"Results: {folder}")


def _add_metric(table: Table, name: str, values: Sequence[float | None]) -> None:
    table.add_row(name.replace("_", " "), "", *("-" if value is None else f"{value:.2f}" for value in values))


def print_results(results: ResultsTable, title: str) -> None:
    """Print a comparison or a sweep, on a narrow terminal as two tables, so that neither names nor numbers are cut."""
    columns = list(range(1 + len(results.settings), len(results.cells()[0])))  # the labels contain the settings
    table, console = _results_part(results, columns, title), _console()
    if console.measure(table, options=console.options.update(max_width=1000)).maximum <= console.width:
        console.print(table)
        return
    header = results.cells()[0]
    details = [column for column in columns if header[column] in DETAILS]
    console.print(_results_part(results, [column for column in columns if column not in details], title))
    console.print(_results_part(results, details, ""))


def _results_part(results: ResultsTable, columns: Sequence[int], title: str) -> Table:
    header, *lines = results.cells()
    labels = [row.group.label_with_prediction for row in results.rows]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", min_width=max(len(text) for label in labels for text in label.split()), overflow="fold")
    for column in columns:
        interval = header[column].startswith("paired")
        table.add_column(header[column], justify="left" if interval else "right", min_width=10 if interval else None)
    for label, line in zip(labels, lines, strict=True):
        table.add_row(label, *(line[column] for column in columns))
    return table


def print_published(paper_result: PaperResult, request: Request, cells: Sequence[tuple[Cell, PlannedRun]]) -> None:
    """Print our results and the published ones in separate columns."""
    full_scale = request.scale == "paper"
    title = (
        f"{paper_result.title}\nours: scale {request.scale} ({describe_scale(request.scale)}); recipe {request.recipe}"
    )
    table = Table(title=title, title_justify="left", caption_justify="left")
    for name in ("method", "B", "C", "batch", "memory", "seeds"):
        table.add_column(name, justify="left" if name == "method" else "right")
    heads = ("APT", "ACT") if paper_result.shows == "apt-act" else ("ours",)
    for name in (*heads, "our gain [95 % interval]", "recipe"):
        table.add_column(name, justify="left" if name == "recipe" else "right")
    for name in ("paper's cell", "paper", "its gain"):
        column = name if full_scale else f"{name} (full scale)"
        table.add_column(column, justify="right", style=None if full_scale else "dim")
    previous = None
    for comparison in compare_with_published(cells):
        if previous not in (None, comparison.cell.column):
            table.add_section()
        previous = comparison.cell.column
        table.add_row(*_published_row(comparison, paper_result.shows == "apt-act"))
    if not full_scale:
        table.caption = "The paper's numbers are from the full experiment and not comparable with ours at this scale."
    _console().print(table)


def _published_row(comparison: PublishedComparison, bars: bool) -> list[str]:
    settings, cell, row = comparison.settings, comparison.cell, comparison.row
    protocol, memory = settings.protocol, settings.memory
    ours = [format_spread(row.metrics[metric]) for metric in (("apt", "act") if bars else METRICS[:1])]
    printed = ""
    if comparison.published_gain is not None:
        printed = f"{comparison.published_gain:+.2f}"
        if cell.printed_gain is not None and abs(cell.printed_gain - comparison.published_gain) > 0.005:
            printed += f" (prints {cell.printed_gain:+.2f})"
    where = f"B={cell.B} C={cell.C} batch {cell.batch_size} memory {cell.memory}"
    return [
        settings.method,
        *map(str, (protocol.base, protocol.step, settings.train.batch_size, memory.per_class, len(row.group.runs))),
        *ours,
        format_difference(row.gain).removesuffix(f" vs {cell.base}"),
        settings.recipe,
        where,
        "" if cell.published is None or bars else f"{cell.published:.2f}",
        "" if bars else printed,
    ]


def print_plan(plan: PlanSummary, title: str) -> None:
    """Print a line for each group, then totals and the measured time."""
    table = Table(title=title, title_justify="left")
    for name in ("group", "seeds", "finished", "started", "to do", "time left per run"):
        table.add_column(name, justify="left" if name == "group" else "right", overflow="fold")
    groups: dict[str, list[tuple[PlannedRun, str, float | None]]] = {}
    for run in plan.runs:
        groups.setdefault(run[0].group, []).append(run)
    for group, runs in groups.items():
        states = [state for _, state, _ in runs]
        left = [seconds for _, state, seconds in runs if state != "finished"]
        estimates = [seconds for seconds in left if seconds is not None]
        time = "" if not left else "?" if len(estimates) < len(left) else clock(max(estimates))
        seeds = ",".join(str(run.settings.seed) for run, _, _ in runs)
        counts = (str(states.count(state) or "") for state in ("finished", "unfinished", "free"))
        table.add_row(group, seeds, *counts, time)
    _console().print(table)
    damaged = f", {plan.count('damaged')} damaged" if plan.count("damaged") else ""
    print(f"{len(plan.runs)} runs: {plan.count('finished')} finished, {plan.count('unfinished')} started{damaged}.")
    print(f"{plan.first_tasks} first tasks will be trained; {plan.shared} runs reuse the first task of another run.")
    if plan.seconds is None:
        print("The time left is unknown until a run of each group has finished.")
    else:
        print(f"About {clock(plan.seconds)} left with {plan.processes} runs at a time, as measured with finished runs.")


def _console() -> Console:
    """Return a console that is wide if the output is not a terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 220)
