"""Our results next to the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.groups import group_plan
from ..analysis.statistics import SummaryRow, summarise
from ..analysis.tables import csv_text, row_values
from ..config import Settings
from ..studies.plan import PlannedRun
from ..yamltext import flatten
from .cells import Cell


@dataclass(frozen=True)
class PublishedComparison:
    """A cell of the paper, and our results for it."""

    cell: Cell
    settings: Settings  # of our first run
    row: SummaryRow
    published_gain: float | None  # difference of the printed accuracies


def compare_with_published(plan: Sequence[tuple[Cell, PlannedRun]]) -> list[PublishedComparison]:
    """Compare our results with the published numbers: one entry per cell, a base and its variants together."""
    groups = group_plan([planned for _, planned in plan])
    first = {planned.group: (cell, planned.settings) for cell, planned in reversed(plan)}
    bare = {cell.column: cell.published for cell, _ in first.values() if cell.variant == "base"}
    comparisons = []
    for name, row in zip(groups, summarise(list(groups.values())), strict=True):
        cell, settings = first[name]
        base = bare.get(cell.column)
        known = cell.variant != "base" and cell.published is not None and base is not None
        difference = round((cell.published or 0.0) - (base or 0.0), 2) if known else None
        comparisons.append(PublishedComparison(cell, settings, row, difference))
    columns = list(dict.fromkeys(comparison.cell.column for comparison in comparisons))
    return sorted(comparisons, key=lambda comparison: columns.index(comparison.cell.column))


def as_dicts(rows: Sequence[PublishedComparison], scale: str) -> list[dict[str, Any]]:
    """Return plain values for table.json, with ours and the paper's in separate sections."""
    return [
        {
            "scale": scale,
            "ours": _ours(row),
            "paper": {
                "dataset": row.cell.dataset,
                "B": row.cell.B,
                "C": row.cell.C,
                "batch_size": row.cell.batch_size,
                "memory": row.cell.memory,
                "average_incremental_accuracy": row.cell.published,
                "gain": row.published_gain,
                "gain_as_printed": row.cell.printed_gain,
            },
        }
        for row in rows
    ]


def _ours(comparison: PublishedComparison) -> dict[str, Any]:
    settings = comparison.settings
    return {
        **row_values(comparison.row),
        "dataset": settings.dataset,
        "recipe": settings.recipe,
        "B": settings.protocol.base,
        "C": settings.protocol.step,
        "batch_size": settings.train.batch_size,
        "memory": settings.memory.per_class,
        "seeds": list(comparison.row.group.seeds),
    }


def to_csv(entries: Sequence[dict[str, Any]]) -> str:
    """Return a CSV with one line per entry and dotted column names such as `ours.metrics.apt.mean`."""
    flat = [{key: _cell(value) for key, value in flatten(entry).items()} for entry in entries]
    columns = list(dict.fromkeys(key for entry in flat for key in entry))
    return csv_text([columns, *([entry.get(key) for key in columns] for entry in flat)])


def _cell(value: Any) -> Any:
    """Return a list as the text of a table cell."""
    return " ".join(map(str, value)) if isinstance(value, list) else value
