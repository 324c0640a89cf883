"""Results as tables on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .runs.compare import Difference, Row, Spread


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
    Console(highlight=False, width=None if sys.stdout.isatty() else 150).print(table)


def _spread(value: Spread | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _gain(gain: Difference | None) -> str:
    if gain is None:
        return ""
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"{gain.mean:+.2f}{interval} vs {gain.against}"
