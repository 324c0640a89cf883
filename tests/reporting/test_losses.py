"""Loss curves on a common task axis."""

import json
from pathlib import Path

import pytest

from cscct.analysis.groups import group_runs
from cscct.analysis.load import find_runs, read_runs
from cscct.analysis.measures import losses_of
from cscct.reporting.losses import loss_curves, task_positions
from synthetic import make_run


def without_first_task(run: Path) -> None:
    """Remove the first task, as in a run that reused a trained first task."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if json.loads(line)["task"] > 0))


def test_epochs_are_spread_over_their_task() -> None:
    places = [(1, "train", 0), (1, "train", 1), (2, "train", 0), (2, "finetune", 0), (2, "finetune", 1)]
    assert task_positions(places) == pytest.approx([2.25, 2.75, 3 + 1 / 6, 3.5, 3 + 5 / 6])


def test_curves_without_the_first_task_are_not_shifted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir+cscct")
    without_first_task(tmp_path / "b")
    groups = group_runs(read_runs(find_runs([tmp_path]), lambda _: None))
    complete, shared = (loss_curves("x", group, losses_of(group)) for group in groups)
    assert complete.figure.axes[0].get_xlim() == shared.figure.axes[0].get_xlim() == (1, 5)
    first, second = (picture.figure.axes[0].get_lines()[0].get_xdata() for picture in (complete, shared))
    assert list(first)[2:] == list(second)  # two epochs a task
    assert "was not trained in this run" in shared.caption
    assert "was not trained" not in complete.caption
    assert shared.table[1][0] == 2
