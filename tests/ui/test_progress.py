"""What people see of one run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conftest import settings_for
from cscct.structs import Task
from cscct.studies.scheduler import StudyStatus
from cscct.ui.progress import Display


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_keeps_place_and_bar(width: int) -> None:
    """With five losses: the losses are what is cut."""
    display = Display("live")
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    task = Task(index=2, n_old=60, n_new=10)
    losses = dict.fromkeys(("cross_entropy", "less_forget", "margin_ranking", "csc", "ct"), 1.234)
    display.run_started(settings_for("lucir+cscct"), (task,) * 6, 100_000)
    display.step(task, "finetune", 9, 160, 12_345, losses)
    assert display.live is not None
    with screen.capture() as captured:
        screen.print(display.live.get_renderable())
    (line,) = captured.get().splitlines()
    place = "task 3/6 finetune epoch 10/160 "
    assert line.startswith(place)
    assert set(line[len(place) : len(place) + 18]) <= set("━╸╺ ")
    assert "images/s" in line


def test_runs_in_a_row_that_fail_or_have_to_wait_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display("plain")
    said: list[str] = []
    monkeypatch.setattr(display, "say", said.append)
    status = StudyStatus({"a": "held", "b": "failed", "c": "finished"}, words={"a": "By 7.", "b": "It became nan."})
    for name in ("a", "b", "c", None):
        display.watch(status, name)
    assert said == ["a has to wait: By 7.", "b failed: It became nan."]
