"""Plans before and between executions."""

import json
from pathlib import Path

import pytest

from conftest import run_quietly
from cscct.errors import UserError
from cscct.studies.datasets import DatasetCache
from cscct.studies.grid import Study, plan_study
from cscct.studies.plan import as_json, complete_plan, summarize_plan
from paper_results import result
from planning import QUICK, small_plan


def test_counts_states_and_shared_first_tasks(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "lucir+cscct", "icarl", seeds=(1, 2))
    before = summarize_plan(plan, 1)
    assert (before.first_tasks, before.shared, before.count("free")) == (2, 4, 6)  # iCaRL's first task is LUCIR's
    run_quietly(tmp_path / "lucir-seed1", "lucir", *QUICK)
    after = summarize_plan(plan, 2)
    assert (after.count("finished"), after.count("free")) == (1, 5)
    assert (after.first_tasks, after.shared) == (1, 4)
    assert after.runs[0][2] == 0
    listing = json.loads(json.dumps(as_json(after)))
    assert [run["state"] for run in listing["runs"]].count("finished") == 1
    assert listing["runs"][1]["settings"]["seed"] == 2


def test_the_number_of_threads_does_not_identify_a_run(tmp_path: Path) -> None:
    run_quietly(tmp_path / "lucir-seed1", "lucir", *QUICK)
    (run,) = small_plan(tmp_path, "lucir", sets=["runtime.threads=2"])
    assert (run.state(), run.settings.runtime.threads) == ("finished", 1)


def test_times_are_those_of_finished_runs_of_the_group(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet", seeds=(1, 2, 3))
    assert summarize_plan(plan, 1).seconds is None
    started = {**result(plan[1], 50.0, 2), "status": "running", "task_sizes": [1] * 6}
    for run, content in ((plan[0], result(plan[0], 50.0)), (plan[1], started)):
        run.begin()
        run.folder.write_result(content)  # one second per task, six tasks
    summary = summarize_plan(plan, 2)
    assert [seconds for _, _, seconds in summary.runs] == [0.0, 4.0, 6.0, None, None, None]
    assert summary.seconds is None
    plan[3].begin()
    plan[3].folder.write_result(result(plan[3], 50.0))
    assert summarize_plan(plan, 2).seconds == (4.0 + 6.0 + 2 * 6.0) / 2


def test_a_plan_with_a_folder_of_images_reads_none_of_them(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cat"):
        (tmp_path / "pets" / "train" / name).mkdir(parents=True)
        (tmp_path / "pets" / "train" / name / "1.jpg").write_text("not decoded")
    (run,) = plan_study(Study(dataset="folder", methods=["lucir"], seeds=[1]), tmp_path / "out")
    datasets = DatasetCache(tmp_path / "pets", print)
    (complete,) = complete_plan([run], datasets, 1)
    assert (complete.settings.protocol.base, complete.settings.protocol.step) == (2, 1)
    datasets.check(complete.settings)
    with pytest.raises(UserError, match="nowhere is not a folder"):
        DatasetCache(tmp_path / "nowhere", print).check(run.settings)
