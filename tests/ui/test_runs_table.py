"""What people see of many runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cscct.runs.folder import RunFolder
from cscct.studies.scheduler import StudyStatus
from cscct.ui.runs_table import RunsTable, run_progress
from exhibits import result
from planning import small_plan


def test_long_names_are_not_cut(tmp_path: Path) -> None:
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


def test_a_held_run_says_who_holds_it(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir")
    table, said = RunsTable("plain").follow(plan), list[str]()
    table.say = said.append  # type: ignore[method-assign]
    table(StudyStatus({plan[0].name: "held"}, words={plan[0].name: "Process 7 works on it."}), plan[0].name)
    assert "lucir-seed1 has to wait. Process 7 works on it." in said[0]


def test_damaged_files_of_a_run_cost_no_table(tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path, "lucir")
    run.begin()
    run.folder.write_result({**result(run, 50.0, 1), "status": "running", "task_sizes": [9] * 4})
    for line in ("{", "{}", '{"task": [], "stage": 1, "epoch": 2}', "[" * 20000):
        (run.folder.path / "metrics.jsonl").write_text(line + "\n")
        assert run_progress(run).where == "task 2/4"
    (run.folder.path / "result.json").write_text("[]")
    assert run_progress(run).where == "starting"
