"""Results as tables on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ..analysis.statistics import METRICS
from ..analysis.tables import ResultsTable, difference_words, spread_words
from ..paper.cells import Cell, Exhibit, Request
from ..paper.comparison import PublishedComparison, compare_with_published
from ..paper.scales import in_words
from ..studies.plan import PlannedRun, PlanSummary
from .progress import clock


def print_result(result: dict[str, Any], folder: Path) -> None:
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
        values = (result["summary"][name][metric] for name in mark)
        table.add_row(metric.replace("_", " "), "", *("-" if value is None else f"{value:.2f}" for value in values))
    console = Console(highlight=False)
    console.print(table)
    console.print("* the method's own prediction", markup=False)
    print(f"Results: {folder}")


def print_results(results: ResultsTable, title: str) -> None:
    """A comparison or a sweep; on a narrow terminal as two tables, so that neither names nor numbers are cut."""
    columns = list(range(1 + len(results.settings), len(results.cells()[0])))  # the labels tell the settings
    whole, console = _results_part(results, columns, title), _console()
    if console.measure(whole, options=console.options.update(max_width=1000)).maximum <= console.width:
        console.print(whole)
        return
    details = columns[3:6]  # APT, ACT and forgetting
    console.print(_results_part(results, [column for column in columns if column not in details], title))
    console.print(_results_part(results, details, ""))


def _results_part(results: ResultsTable, columns: Sequence[int], title: str) -> Table:
    header, *lines = results.cells()
    labels = [row.group.label_with_prediction for row in results.rows]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", min_width=max(len(word) for label in labels for word in label.split()), overflow="fold")
    for column in columns:
        interval = header[column].startswith("paired")
        table.add_column(header[column], justify="left" if interval else "right", min_width=10 if interval else None)
    for label, line in zip(labels, lines, strict=True):
        table.add_row(label, *(line[column] for column in columns))
    return table


def print_published(exhibit: Exhibit, request: Request, cells: Sequence[tuple[Cell, PlannedRun]]) -> None:
    """Ours and the paper's, in columns of their own, each under its scale."""
    whole = request.scale == "paper"
    title = f"{exhibit.title}\nours: scale {request.scale} ({in_words(request.scale)}); recipe {request.recipe}"
    table = Table(title=title, title_justify="left", caption_justify="left")
    for name in ("method", "B", "C", "batch", "memory", "seeds"):
        table.add_column(name, justify="left" if name == "method" else "right")
    heads = ("APT", "ACT") if exhibit.shows == "apt-act" else ("ours",)
    for name in (*heads, "our gain [95 % interval]", "recipe"):
        table.add_column(name, justify="left" if name == "recipe" else "right")
    for name in ("paper's cell", "paper", "its gain"):
        table.add_column(name if whole else f"{name} (full scale)", justify="right", style="dim" if not whole else None)
    before = None
    for one in compare_with_published(cells):
        if before not in (None, one.cell.column):
            table.add_section()
        before = one.cell.column
        table.add_row(*_published_row(one, exhibit.shows == "apt-act"))
    if not whole:
        table.caption = (
            "The paper's numbers are of its full experiment: ours at this scale are not to be set against them."
        )
    _console().print(table)


def _published_row(one: PublishedComparison, bars: bool) -> list[str]:
    settings, cell = one.settings, one.cell
    protocol, memory = settings.protocol, settings.memory
    ours = [spread_words(one.row.metrics[metric]) for metric in (("apt", "act") if bars else METRICS[:1])]
    printed = ""
    if one.published_gain is not None:
        printed = f"{one.published_gain:+.2f}"
        if cell.printed_gain is not None and abs(cell.printed_gain - one.published_gain) > 0.005:
            printed += f" (prints {cell.printed_gain:+.2f})"
    where = f"B={cell.B} C={cell.C} batch {cell.batch_size} memory {cell.memory}"
    return [
        settings.method,
        *map(str, (protocol.base, protocol.step, settings.train.batch_size, memory.per_class, len(one.row.group.runs))),
        *ours,
        difference_words(one.row.gain).removesuffix(f" vs {cell.base}"),
        settings.recipe,
        where,
        "" if cell.published is None or bars else f"{cell.published:.2f}",
        "" if bars else printed,
    ]


def print_plan(plan: PlanSummary, title: str) -> None:
    """A line for each group, then what it all comes to."""
    table = Table(title=title, title_justify="left")
    for name in ("group", "seeds", "finished", "begun", "to do", "time of a run"):
        table.add_column(name, justify="left" if name == "group" else "right", overflow="fold")
    groups: dict[str, list[tuple[PlannedRun, str, float | None]]] = {}
    for run in plan.runs:
        groups.setdefault(run[0].group, []).append(run)
    for group, runs in groups.items():
        states = [state for _, state, _ in runs]
        left = [seconds for _, state, seconds in runs if state != "finished"]
        time = "" if not left else "?" if None in left else clock(max(one for one in left if one is not None))
        seeds = ",".join(str(run.settings.seed) for run, _, _ in runs)
        counts = (str(states.count(state) or "") for state in ("finished", "unfinished", "free"))
        table.add_row(group, seeds, *counts, time)
    _console().print(table)
    damaged = f", {plan.count('damaged')} damaged" if plan.count("damaged") else ""
    print(f"{len(plan.runs)} runs: {plan.count('finished')} finished, {plan.count('unfinished')} begun{damaged}.")
    print(f"{plan.first_tasks} first tasks are to be trained; {plan.shared} runs take theirs from another run.")
    if plan.seconds is None and plan.on_gpu:
        print("How long it takes is not known: no estimate is made for GPUs before a run has finished.")
    elif plan.seconds is None:
        print("How long it takes cannot be told in advance.")
    else:
        how = "by what finished runs took" if plan.measured else "a rough guess for CPU cores like a server's"
        print(f"About {clock(plan.seconds)} with {plan.processes} at a time ({how}).")


def _console() -> Console:
    """Wide where nobody looks at it on a terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 220)
