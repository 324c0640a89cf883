"""Results of a plan as rows, a cell each: mean and deviation over seeds, and the gain over the bare method."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..config import Settings
from ..methods import EXTRAS, parse_method
from ..paper.cells import Cell
from ..studies.plan import PlannedRun
from .statistics import METRICS, Difference, Spread, paired, spread

AVERAGE = METRICS[0]


@dataclass(frozen=True)
class Row:
    cell: str
    settings: Settings  # of its first run
    results: Mapping[int, Mapping[str, Any]]  # finished ones, by seed

    def values(self, metric: str) -> dict[int, float | None]:
        """In percent, of the method's own predictor, by seed."""
        return {seed: result["summary"][result["headline"]][metric] for seed, result in self.results.items()}

    def spread(self, metric: str) -> Spread | None:
        values = [value for value in self.values(metric).values() if value is not None]
        return spread(values) if values else None


def rows_of(plan: Sequence[PlannedRun]) -> list[Row]:
    """Only what is finished counts; a cell without a finished run has a row all the same."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    settings: dict[str, Settings] = {}
    for planned in plan:
        results = found.setdefault(planned.cell, {})
        settings.setdefault(planned.cell, planned.settings)
        result = planned.folder.result()
        if result.get("status") == "finished":
            results[planned.settings.seed] = result
    return [Row(cell, settings[cell], results) for cell, results in found.items()]


def gain(row: Row, rows: Sequence[Row]) -> Difference | None:
    """Over the same method without CSC and CT, paired by seed, all other settings being equal."""
    bare = next((other for other in rows if _is_bare_of(other.settings, row.settings)), None)
    if bare is None:
        return None
    ours, theirs = row.values(AVERAGE), bare.values(AVERAGE)
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    return paired([ours[seed] or 0.0 for seed in seeds], [theirs[seed] or 0.0 for seed in seeds], bare.settings.method)


def _is_bare_of(bare: Settings, other: Settings) -> bool:
    base, extra = parse_method(other.method)
    return bool(extra) and bare.method == base.name and _common(bare) == _common(other)


def _common(settings: Settings) -> dict[str, Any]:
    dump = settings.dump()
    dump["loss"] = {name: options for name, options in dump["loss"].items() if name not in EXTRAS["cscct"]}
    return {key: value for key, value in dump.items() if key not in ("method", "seed", "runtime", "checkpoint")}


@dataclass(frozen=True)
class PublishedComparison:
    """One of our cells beside the paper's."""

    cell: Cell
    row: Row
    gain: Difference | None
    published_gain: float | None  # difference of the printed accuracies


def compare_with_published(plan: Sequence[tuple[Cell, PlannedRun]]) -> list[PublishedComparison]:
    rows = rows_of([planned for _, planned in plan])
    cells = {planned.cell: cell for cell, planned in plan}
    bare = {cell.column: cell.published for cell in cells.values() if cell.variant == "base"}
    found = []
    for row in rows:
        cell = cells[row.cell]
        base = bare.get(cell.column)
        known = cell.variant != "base" and cell.published is not None and base is not None
        difference = round((cell.published or 0.0) - (base or 0.0), 2) if known else None
        found.append(PublishedComparison(cell, row, gain(row, rows), difference))
    columns = list(dict.fromkeys(one.cell.column for one in found))
    return sorted(found, key=lambda one: columns.index(one.cell.column))  # a base and its variants together


def rows_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [_row_json(row, gain(row, rows)) for row in rows]


def _row_json(row: Row, difference: Difference | None) -> dict[str, Any]:
    settings = row.settings
    spreads = {metric: row.spread(metric) for metric in METRICS}
    return {
        "cell": row.cell,
        "method": settings.method,
        "dataset": settings.dataset,
        "recipe": settings.recipe,
        "B": settings.protocol.base,
        "C": settings.protocol.step,
        "batch_size": settings.train.batch_size,
        "memory": f"{settings.memory.total} in all" if settings.memory.policy == "total" else settings.memory.per_class,
        "seeds": sorted(row.results),
        "metrics": {metric: asdict(value) if value else None for metric, value in spreads.items()},
        "gain": asdict(difference) if difference else None,
    }


def published_json(rows: Sequence[PublishedComparison], scale: str) -> list[dict[str, Any]]:
    """The two scales of numbers stand in sections of their own, never in one."""
    return [
        {
            "scale": scale,
            "ours": _row_json(one.row, one.gain),
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


def flat_csv(entries: Sequence[Mapping[str, Any]]) -> str:
    """Nested entries as one row each, `ours.metrics.apt.mean` for a column's name."""
    flat = [_flat(entry) for entry in entries]
    columns = list(dict.fromkeys(key for entry in flat for key in entry))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = " ".join(map(str, value)) if isinstance(value, list) else value
    return found
