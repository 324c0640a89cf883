"""Our results beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.groups import group_plan
from ..analysis.statistics import SummaryRow, summarise
from ..analysis.tables import csv_text, flatten, row_values
from ..config import Settings
from ..studies.plan import PlannedRun
from .cells import Cell


@dataclass(frozen=True)
class PublishedComparison:
    """A cell of the paper, and our results for it."""

    cell: Cell
    settings: Settings  # of our first run
    row: SummaryRow
    published_gain: float | None  # difference of the printed accuracies


def compare_with_published(plan: Sequence[tuple[Cell, PlannedRun]]) -> list[PublishedComparison]:
    """Every cell once, a base and its variants together."""
    groups = group_plan([planned for _, planned in plan])
    first = {planned.group: (cell, planned.settings) for cell, planned in reversed(plan)}
    bare = {cell.column: cell.published for cell, _ in first.values() if cell.variant == "base"}
    found = []
    for name, row in zip(groups, summarise(list(groups.values())), strict=True):
        cell, settings = first[name]
        base = bare.get(cell.column)
        known = cell.variant != "base" and cell.published is not None and base is not None
        difference = round((cell.published or 0.0) - (base or 0.0), 2) if known else None
        found.append(PublishedComparison(cell, settings, row, difference))
    columns = list(dict.fromkeys(one.cell.column for one in found))
    return sorted(found, key=lambda one: columns.index(one.cell.column))


def as_dicts(rows: Sequence[PublishedComparison], scale: str) -> list[dict[str, Any]]:
    """Plain values, as table.json holds them: ours and the paper's in sections of their own."""
    return [
        {
            "scale": scale,
            "ours": _ours(one),
            "paper": {
                "dataset": one.cell.dataset,
                "B": one.cell.B,
                "C": one.cell.C,
                "batch_size": one.cell.batch_size,
                "memory": one.cell.memory,
                "average_incremental_accuracy": one.cell.published,
                "gain": one.published_gain,
                "gain_as_printed": one.cell.printed_gain,
            },
        }
        for one in rows
    ]


def _ours(one: PublishedComparison) -> dict[str, Any]:
    settings = one.settings
    return {
        **row_values(one.row),
        "dataset": settings.dataset,
        "recipe": settings.recipe,
        "B": settings.protocol.base,
        "C": settings.protocol.step,
        "batch_size": settings.train.batch_size,
        "memory": settings.memory.per_class,
        "seeds": list(one.row.group.seeds),
    }


def to_csv(entries: Sequence[dict[str, Any]]) -> str:
    """One line for each entry, `ours.metrics.apt.mean` for a column's name."""
    flat = [flatten(entry) for entry in entries]
    columns = list(dict.fromkeys(key for entry in flat for key in entry))
    return csv_text([columns, *([entry.get(key) for key in columns] for entry in flat)])
