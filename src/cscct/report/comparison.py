"""What a comparison leaves beside its runs: the table in four formats, and the curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..analysis.groups import group_plan
from ..analysis.tables import ResultsTable, results_table
from ..studies.plan import PlannedRun
from .curves import save_curves


def write_comparison(plan: Sequence[PlannedRun], folder: Path) -> tuple[ResultsTable, str, list[str]]:
    """The table, a title that tells the protocol, and the names of the files written to `folder`."""
    groups = list(group_plan(plan).values())
    table = results_table(groups, against_first=True)
    settings, seeds = plan[0].settings, len({run.settings.seed for run in plan})
    protocol = f"B={settings.protocol.base}, C={settings.protocol.step}"
    title = f"{settings.dataset}, {protocol}, {seeds} seed{'s' if seeds > 1 else ''}"
    files = [*table.write(folder, "compare"), "curves.png"]
    save_curves(groups, title, folder / "curves.png")
    return table, title, files
