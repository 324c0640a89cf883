"""What a plan says before anything is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import run_quietly
from cscct.errors import UserError
from cscct.studies.datasets import DatasetCache
from cscct.studies.grid import Study, plan_study
from cscct.studies.plan import as_json, complete_plan, summarize_plan
from exhibits import result
from planning import QUICK, small_plan


def test_counts_states_and_shared_first_tasks(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "lucir+cscct", "icarl", seeds=(1, 2))
    before = summarize_plan(plan, 1)
    assert (before.first_tasks, before.shared, before.count("free")) == (2, 4, 6)  # iCaRL's first task is LUCIR's
    run_quietly(tmp_path / "lucir-seed1", "lucir", *QUICK)
    after = summarize_plan(plan, 2)
    assert (after.count("finished"), after.count("free")) == (1, 5)
    assert (after.first_tasks, after.shared) == (1, 4)
    assert after.measured
    assert not before.measured
    assert after.runs[0][2] == 0
    listing = json.loads(json.dumps(as_json(after)))
    assert [run["state"] for run in listing["runs"]].count("finished") == 1
    assert listing["runs"][1]["settings"]["seed"] == 2


def test_other_threads_do_not_make_another_run(tmp_path: Path) -> None:
    run_quietly(tmp_path / "lucir-seed1", "lucir", *QUICK)
    (run,) = small_plan(tmp_path, "lucir", sets=["runtime.threads=2"])
    assert (run.state(), run.settings.runtime.threads) == ("finished", 1)


def test_another_precision_makes_another_run(tmp_path: Path) -> None:
    """Under its old name too; a sweep with another precision must not return the old results."""
    run_quietly(tmp_path / "lucir-seed1", "lucir", *QUICK)
    for name in ("numerics.precision", "runtime.precision"):
        with pytest.raises(UserError, match="already holds another run"):
            small_plan(tmp_path, "lucir", sets=[f"{name}=bf16-mixed"])


@pytest.mark.parametrize("setting", ["runtime.device=cuda", "network.backbone=efficientnet-lite0"])
def test_where_there_is_no_rule_of_thumb_a_run_has_to_be_measured_first(setting: str, tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet", sets=[setting])
    assert summarize_plan(plan, 1).seconds is None
    assert summarize_plan(plan, 1).on_gpu == (setting == "runtime.device=cuda")
    plan[0].begin()
    plan[0].folder.write_result(result(plan[0], 50.0))
    after = summarize_plan(plan, 1)  # what a run took there tells
    assert after.measured
    assert after.seconds is not None


def test_starting_many_small_runs_takes_time(tmp_path: Path) -> None:
    """Of 16 runs on digits most of the time is not spent on multiplications."""
    found = summarize_plan(small_plan(tmp_path, "lucir", "lucir+cscct", seeds=range(8)), 1)
    assert found.seconds is not None
    assert found.seconds > 16


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


NO_TORCH = """
import sys
sys.argv = ["cscct", *{words!r}]
from cscct.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("torch" in sys.modules, "matplotlib" in sys.modules)
"""


@pytest.mark.parametrize("name", ["table1", "tsne"])
def test_a_dry_run_needs_neither_torch_nor_data(name: str, tmp_path: Path) -> None:
    """That is what makes it quick: importing torch takes longer than planning a hundred runs."""
    code = NO_TORCH.format(words=["reproduce", name, "--dry-run"])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
    assert "first tasks are to be trained" in done.stdout
    assert list(tmp_path.iterdir()) == []
