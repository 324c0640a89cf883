"""Results of the paper with made-up results."""

from pathlib import Path
from typing import Any

from cscct.paper.cells import Cell, Request, find, plan_result
from cscct.studies.plan import PlannedRun

SEEDS = (1, 2)


def result(planned: PlannedRun, accuracy: float, tasks: int = 6) -> dict[str, Any]:
    """As a run would leave it, with every accuracy the same."""
    headline = planned.settings.predict.predictor
    summary = {
        "average_incremental_accuracy": accuracy,
        "last_accuracy": accuracy - 1,
        "apt": accuracy - 2,
        "act": accuracy + 2,
        "forgetting": 3.0,
    }
    return {
        "status": "finished",
        "method": planned.settings.method,
        "dataset": planned.settings.dataset,
        "headline": headline,
        "summary": {headline: summary, "other": dict.fromkeys(summary, 0.0)},
        "tasks": [
            {
                "task": t,
                "classes": [f"{t}a", f"{t}b"],
                "accuracy": {headline: accuracy - t},
                "seconds": 1.0,
            }
            for t in range(tasks)
        ],
        "task_sizes": [1] * tasks,
        "matrix": {headline: [[accuracy] * (t + 1) for t in range(tasks)]},
        "seed": planned.settings.seed,
    }


def finished(name: str, out: Path, scale: str = "cpu") -> list[tuple[Cell, PlannedRun]]:
    """All runs of a paper result; CSC gives one point, CT two, a higher seed half a point, CT's less at seed 2."""
    plan = plan_result(find(name), Request(scale, seeds=SEEDS), out)
    for cell, planned in plan:
        added = {"base": 0.0, "CSC": 1.0, "CT": 2.0, "CSCCT": 3.0}[cell.variant]
        wobble = 0.4 if "CT" in cell.variant and planned.settings.seed == 2 else 0.0
        planned.folder.create(planned.settings)
        planned.folder.write_result(result(planned, 50 + added + planned.settings.seed / 2 - wobble))
    return plan
