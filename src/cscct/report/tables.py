"""runs.csv: a line for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.groups import Group
from ..analysis.settings import PREDICTIONS
from ..analysis.statistics import METRICS

Table = list[list[Any]]


def runs_table(groups: Sequence[Group]) -> Table:
    """A row for each run."""
    about = ["group", "method", "dataset", "seed", "status", "prediction", "tasks_done", "tasks"]
    figures = [f"{head}_{name}" for head in PREDICTIONS for name in METRICS]
    table: Table = [[*about, *figures, "seconds", "weights_sha256", "folder"]]
    for group in groups:
        for run in group.runs:
            result = run.result
            cells = [group.label, run.method, run.settings["dataset"], run.seed, result["status"], run.headline]
            cells += [len(run.sizes), run.planned]
            cells += [result["summary"].get(head, {}).get(name) for head in PREDICTIONS for name in METRICS]
            seconds = sum(task.get("seconds") or 0.0 for task in result["tasks"])
            table.append([*cells, seconds, result.get("weights_sha256"), str(run.path)])
    return table
