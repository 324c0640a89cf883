"""Progress of many runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cscct.runs.folder import RunFolder
from cscct.studies.scheduler import StudyStatus
from cscct.ui.runs_table import RunSeries, RunsTable, run_progress
from paper_results import result
from planning import small_plan


def test_long_names_are_not_truncated(tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path, "lucir")
    name = "lucir_memory.per_class-2_train.batch_size-32_loss.less_forget.weight-5_seed1"
    run = replace(run, folder=RunFolder(tmp_path / name))
    table = RunsTable("quiet").follow([run])
    screen = Console(width=60, color_system=None)
    with screen.capture() as captured:
        screen.print(table._table(StudyStatus({name: "running"})))
    _, header, *lines = captured.get().splitlines()
    assert "".join(line[: header.index("state")].strip() for line in lines) == name
    assert "running" in lines[0]


def test_a_waiting_run_names_the_process_it_waits_for(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir")
    table, lines = RunsTable("plain").follow(plan), list[str]()
    table.say = lines.append  # type: ignore[method-assign]
    table(StudyStatus({plan[0].name: "held"}, messages={plan[0].name: "Process 7 works on it."}), plan[0].name)
    assert "lucir-seed1 is waiting. Process 7 works on it." in lines[0]


def test_damaged_files_of_a_run_do_not_break_the_table(tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path, "lucir")
    run.begin()
    run.folder.write_result({**result(run, 50.0, 1), "status": "running", "task_sizes": [9] * 4})
    for line in ("{", "{}", '{"task": [], "stage": 1, "epoch": 2}', "[" * 20000):
        (run.folder.path / "metrics.jsonl").write_text(line + "\n")
        assert run_progress(run).where == "task 2/4"
    (run.folder.path / "result.json").write_text("[]")
    assert run_progress(run).where == "starting"


def test_run_series_prints_why_runs_fail_or_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    display = RunSeries("plain")
    lines: list[str] = []
    monkeypatch.setattr(display, "say", lines.append)
    status = StudyStatus({"a": "held", "b": "failed", "c": "finished"}, messages={"a": "By 7.", "b": "It became nan."})
    for name in ("a", "b", "c", None):
        display.show_status(status, name)
    assert lines == ["a is waiting: By 7.", "b failed: It became nan."]
