"""summary.csv and runs.csv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.load import Group
from ..analysis.measures import SummaryRow
from ..analysis.statistics import METRICS

Table = list[list[Any]]


def summary_table(rows: Sequence[SummaryRow]) -> Table:
    parts = [f"{name}_{part}" for name in METRICS for part in ("mean", "sd")]
    about = ["group", "method", "dataset", "prediction", "tasks_done", "tasks", "seeds"]
    table: Table = [[*about, *parts, "against", "pairs", "gain", "gain_low", "gain_high"]]
    for row in rows:
        group, run = row.group, row.group.runs[0]
        cells: list[Any] = [group.label, group.method, run.settings["dataset"], run.headline]
        cells += [len(run.sizes), run.planned, " ".join(map(str, group.seeds))]
        for value in row.metrics.values():
            cells += [value.mean, value.deviation] if value else [None, None]
        gain = row.gain
        cells += [gain.against, row.pairs, gain.mean, gain.low, gain.high] if gain else [None] * 5
        table.append(cells)
    return table


def runs_table(groups: Sequence[Group]) -> Table:
    heads = ("classifier", "nme")
    about = ["group", "method", "dataset", "seed", "status", "prediction", "tasks_done", "tasks"]
    figures = [f"{head}_{name}" for head in heads for name in METRICS]
    table: Table = [[*about, *figures, "seconds", "weights_sha256", "folder"]]
    for group in groups:
        for run in group.runs:
            result = run.result
            cells = [group.label, run.method, run.settings["dataset"], run.seed, result["status"], run.headline]
            cells += [len(run.sizes), run.planned]
            cells += [result["summary"].get(head, {}).get(name) for head in heads for name in METRICS]
            seconds = sum(task.get("seconds", 0.0) for task in result["tasks"])
            table.append([*cells, seconds, result.get("weights_sha256"), str(run.path)])
    return table
