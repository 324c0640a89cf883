"""summary.csv and runs.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.load import Group
from ..analysis.measures import SummaryRow, spread_over_seeds
from ..analysis.statistics import METRICS, Spread

Table = list[list[Any]]
HEADS = ("classifier", "nme")


def other_prediction(group: Group) -> tuple[str, dict[str, Spread | None]] | None:
    """The prediction that is not the method's own, and the metrics with it; None where the runs did not store it."""
    head = next(head for head in HEADS if head != group.runs[0].headline)
    if not all(head in run.result["summary"] for run in group.runs):
        return None
    return head, {name: spread_over_seeds(group, name, head) for name in METRICS}


def summary_table(rows: Sequence[SummaryRow]) -> Table:
    """A row for each group: means and standard deviations over seeds with both predictions, and the gain."""
    parts = [f"{name}_{part}" for name in METRICS for part in ("mean", "sd")]
    about = ["group", "method", "dataset", "prediction", "tasks_done", "tasks", "seeds"]
    gains = ["against", "pairs", "gain", "gain_low", "gain_high"]
    table: Table = [[*about, *parts, *gains, "other_prediction", *(f"other_{part}" for part in parts)]]
    for row in rows:
        group, run = row.group, row.group.runs[0]
        cells: list[Any] = [group.label, group.method, run.settings["dataset"], run.headline]
        cells += [len(run.sizes), run.planned, " ".join(map(str, group.seeds)), *_means_and_sds(row.metrics)]
        gain = row.gain
        cells += [gain.against, row.pairs, gain.mean, gain.low, gain.high] if gain else [None] * 5
        other, metrics = other_prediction(group) or (None, dict.fromkeys(METRICS))
        table.append([*cells, other, *_means_and_sds(metrics)])
    return table


def _means_and_sds(metrics: Mapping[str, Spread | None]) -> list[float | None]:
    pairs = [(value.mean, value.deviation) if value else (None, None) for value in metrics.values()]
    return [part for pair in pairs for part in pair]


def runs_table(groups: Sequence[Group]) -> Table:
    """A row for each run."""
    about = ["group", "method", "dataset", "seed", "status", "prediction", "tasks_done", "tasks"]
    figures = [f"{head}_{name}" for head in HEADS for name in METRICS]
    table: Table = [[*about, *figures, "seconds", "weights_sha256", "folder"]]
    for group in groups:
        for run in group.runs:
            result = run.result
            cells = [group.label, run.method, run.settings["dataset"], run.seed, result["status"], run.headline]
            cells += [len(run.sizes), run.planned]
            cells += [result["summary"].get(head, {}).get(name) for head in HEADS for name in METRICS]
            seconds = sum(task.get("seconds") or 0.0 for task in result["tasks"])
            table.append([*cells, seconds, result.get("weights_sha256"), str(run.path)])
    return table
