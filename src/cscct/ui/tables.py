"""Results as tables on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..analysis.statistics import METRICS, Difference, Row, Spread
from ..analysis.tables import PublishedComparison, compare_with_published, gain
from ..analysis.tables import Row as CellRow
from ..paper.cells import Cell, Exhibit, Request
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


def print_comparison(rows: Sequence[Row], title: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name in ("average incremental", "last", "APT", "ACT", "forgetting"):
        table.add_column(name, justify="right")
    table.add_column("paired difference [95 % interval]")
    for row in rows:
        cells = (_spread(value) for value in row.metrics.values())
        label = f"{row.method} (nearest mean)" if row.headline == "nme" else row.method
        table.add_row(label, *cells, _gain(row.gain))
    _print(table)


def print_sweep(rows: Sequence[CellRow], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("cell", "seeds", "average incremental", "last", "APT", "ACT", "forgetting"):
        table.add_column(name, justify="left" if name == "cell" else "right")
    table.add_column("gain over the bare method [95 % interval]")
    for row in rows:
        cells = (_spread(row.spread(metric)) for metric in METRICS)
        table.add_row(row.cell, str(len(row.results)), *cells, _gain(gain(row, rows)))
    _print(table)


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
    _print(table)


def _published_row(one: PublishedComparison, bars: bool) -> list[str]:
    settings, cell = one.row.settings, one.cell
    protocol, memory = settings.protocol, settings.memory
    ours = [_spread(one.row.spread(metric)) for metric in (("apt", "act") if bars else METRICS[:1])]
    printed = ""
    if one.published_gain is not None:
        printed = f"{one.published_gain:+.2f}"
        if cell.printed_gain is not None and abs(cell.printed_gain - one.published_gain) > 0.005:
            printed += f" (prints {cell.printed_gain:+.2f})"
    where = f"B={cell.B} C={cell.C} batch {cell.batch_size} memory {cell.memory}"
    return [
        settings.method,
        *map(str, (protocol.base, protocol.step, settings.train.batch_size, memory.per_class, len(one.row.results))),
        *ours,
        _gain(one.gain).removesuffix(f" vs {cell.base}"),
        settings.recipe,
        where,
        "" if cell.published is None or bars else f"{cell.published:.2f}",
        "" if bars else printed,
    ]


def print_plan(plan: PlanSummary, title: str) -> None:
    """A line a cell, then what it all comes to."""
    table = Table(title=title, title_justify="left")
    for name in ("cell", "seeds", "finished", "begun", "to do", "about, a run"):
        table.add_column(name, justify="left" if name == "cell" else "right")
    groups: dict[str, list[tuple[PlannedRun, str, float | None]]] = {}
    for run in plan.runs:
        groups.setdefault(run[0].cell, []).append(run)
    for cell, runs in groups.items():
        states = [state for _, state, _ in runs]
        left = [seconds for _, state, seconds in runs if state != "finished"]
        time = "" if not left else "?" if None in left else clock(max(one for one in left if one is not None))
        seeds = ",".join(str(run.settings.seed) for run, _, _ in runs)
        counts = (str(states.count(state) or "") for state in ("finished", "unfinished", "free"))
        table.add_row(cell, seeds, *counts, time)
    _print(table)
    print(f"{len(plan.runs)} runs: {plan.count('finished')} finished, {plan.count('unfinished')} begun.")
    print(f"{plan.first_tasks} first tasks are to be trained; {plan.shared} runs take theirs from another run.")
    if plan.seconds is None:
        print("How long it takes is not known: the dataset does not say how large it is.")
    else:
        how = "by what finished runs took" if plan.measured else "a rough guess for CPU cores like a server's"
        print(f"About {clock(plan.seconds)} with {plan.processes} at a time ({how}).")


def _print(table: Table) -> None:
    """Whole, where nobody looks at it on a terminal."""
    Console(highlight=False, width=None if sys.stdout.isatty() else 220).print(table)


def _spread(value: Spread | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _gain(gain: Difference | None) -> str:
    if gain is None:
        return ""
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"{gain.mean:+.2f}{interval} vs {gain.against}"
