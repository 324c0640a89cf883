"""Several methods on the same seeds: means, deviations, paired differences."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..methods import split_method

METRICS = ("average_incremental_accuracy", "last_accuracy", "apt", "act", "forgetting")


@dataclass(frozen=True)
class Spread:
    mean: float
    deviation: float | None  # None with one seed


@dataclass(frozen=True)
class Difference:
    """Mean of the differences seed by seed, with its 95 % confidence interval (Student's t)."""

    against: str
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    method: str
    headline: str
    seeds: int
    metrics: dict[str, Spread | None]
    gain: Difference | None  # in average incremental accuracy


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def paired(values: Sequence[float], reference: Sequence[float], against: str) -> Difference:
    differences = [a - b for a, b in zip(values, reference, strict=True)]
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return Difference(against, mean, None, None)
    from scipy.stats import t

    half = float(t.ppf(0.975, len(differences) - 1)) * statistics.stdev(differences) / math.sqrt(len(differences))
    return Difference(against, mean, mean - half, mean + half)


def compare(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """A row a method. `results[method]` holds one result for each seed, the seeds in the same order throughout.

    A method with additions is set against its own base where that is among them, any other against the first.
    """
    methods = list(results)
    rows = []
    for method, runs in results.items():
        headline = runs[0]["headline"]
        values = {name: [run["summary"][headline][name] for run in runs] for name in METRICS}
        base = split_method(method)[0]
        against = base if base in results and base != method else methods[0]
        gain = None
        if against != method:
            other = results[against]
            reference = [run["summary"][run["headline"]][METRICS[0]] for run in other]
            gain = paired(values[METRICS[0]], reference, against)
        metrics = {name: None if None in column else spread(column) for name, column in values.items()}
        rows.append(Row(method, headline, len(runs), metrics, gain))
    return rows


def as_json(rows: Sequence[Row], seeds: Sequence[int], dataset: str) -> dict[str, Any]:
    return {"dataset": dataset, "seeds": list(seeds), "methods": [asdict(row) for row in rows]}


def as_csv(rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = [f"{name}_{part}" for name in METRICS for part in ("mean", "sd")]
    writer.writerow(["method", "headline", "seeds", *head, "against", "gain", "gain_low", "gain_high"])
    for row in rows:
        cells = [part for name in METRICS for part in _cells(row.metrics[name])]
        gain = row.gain or Difference("", math.nan, None, None)
        tail = [gain.against, "" if row.gain is None else gain.mean, gain.low, gain.high]
        writer.writerow([row.method, row.headline, row.seeds, *cells, *tail])
    return out.getvalue()


def _cells(value: Spread | None) -> tuple[float | None, float | None]:
    return (value.mean, value.deviation) if value else (None, None)
