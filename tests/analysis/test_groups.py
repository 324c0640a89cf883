"""Grouping of runs, and labels of groups."""

import shutil
from pathlib import Path

import pytest

from cscct.analysis.groups import group_plan
from cscct.analysis.settings import label_groups, short_keys
from cscct.errors import UserError
from cscct.reporting import write_report
from planning import QUICK, small_plan
from synthetic import groups_in, make_run


def labels_in(folder: Path) -> list[str]:
    return [group.label for group in groups_in(folder)]


def test_runs_of_a_group_differ_only_in_the_seed(tmp_path: Path) -> None:
    for seed in (2, 1):
        for method in ("lucir+cscct", "lucir"):
            make_run(tmp_path / f"{method}-{seed}", method, seed=seed)
    make_run(tmp_path / "device", "lucir", "digits", "runtime.eval_batch_size=7", "memory.total=9", seed=3)
    groups = groups_in(tmp_path)
    assert [(group.label, group.seeds) for group in groups] == [("lucir", (1, 2, 3)), ("lucir+cscct", (1, 2))]


def test_labels_have_the_settings_that_differ(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir", "digits", "protocol.base=6")
    make_run(tmp_path / "b", "lucir", "digits", "memory.policy=total", "memory.total=100")
    make_run(tmp_path / "c", "podnet")
    assert labels_in(tmp_path) == [
        "lucir, B=6, policy=per_class, per_class=5",
        "lucir, B=4, policy=total, total=100, rounding=floor",
        "podnet, B=4, policy=per_class, per_class=5",
    ]
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    make_run(tmp_path / "d", "podnet", "digits", "loss.nca.margin=0.3")
    make_run(tmp_path / "e", "lucir")
    assert labels_in(tmp_path) == ["podnet, nca.margin=0.6", "podnet, nca.margin=0.3", "lucir"]


def test_unfinished_runs_are_separate_groups_and_runs_without_tasks_are_skipped(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1)
    make_run(tmp_path / "b", seed=2, done=2, status="running")
    make_run(tmp_path / "c", seed=3, done=0, status="running")
    warnings: list[str] = []
    assert [group.label for group in groups_in(tmp_path, warnings)] == ["lucir", "lucir, 2 of 4 tasks"]
    assert len(warnings) == 1
    assert "c is skipped" in warnings[0]
    with pytest.raises(UserError, match="would be empty"):
        write_report([tmp_path / "c"], tmp_path / "out", warn=warnings.append)
    assert not (tmp_path / "out").exists()


def test_classes_are_not_averaged_over_different_class_orders(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), seed=seed)  # digits: the order comes from the seed
    (group,) = groups_in(tmp_path)
    assert [run.seed for run in group.comparable] == [1]
    assert "the class order differs" in group.averaging


def test_runs_with_different_precision_are_different_groups(tmp_path: Path) -> None:
    """Also if the setting has its old name."""
    make_run(tmp_path / "a", "lucir", "digits", "numerics.precision=32-true")
    make_run(tmp_path / "b", "lucir", "digits", "runtime.precision=bf16-mixed")
    assert labels_in(tmp_path) == ["lucir, precision=32-true", "lucir, precision=bf16-mixed"]


def test_groups_of_a_plan_have_the_finished_runs(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet", seeds=(1, 2))
    sets = (*QUICK, "protocol.base=4", "protocol.step=2")  # as in the plan
    make_run(tmp_path / "podnet-seed2", "podnet", "digits", *sets, seed=2)
    make_run(tmp_path / "podnet-seed1", "podnet", "digits", *sets, seed=1, done=2, status="running")
    groups = group_plan(plan)
    assert [(name, group.label, group.seeds) for name, group in groups.items()] == [
        ("lucir", "lucir", ()),
        ("podnet", "podnet", (2,)),
    ]
    assert not groups["lucir"].complete


def test_settings_that_depend_on_the_dataset_are_not_in_labels(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir+csc", "digits", "loss.csc.weight=3.0")
    for weight in (1.0, 5.0):
        make_run(tmp_path / str(weight), "lucir+csc", "cifar100", f"loss.csc.weight={weight}", done=1, status="running")
    assert labels_in(tmp_path) == [
        "lucir+csc, dataset=cifar100, csc.weight=1, 1 of 11 tasks",
        "lucir+csc, dataset=cifar100, csc.weight=5, 1 of 11 tasks",
        "lucir+csc, dataset=digits, csc.weight=3",
    ]


def test_short_keys_are_the_shortest_suffixes_that_identify_a_setting() -> None:
    known = ["train.lr", "finetune.lr", "loss.csc.weight", "loss.ct.weight", "memory.per_class", "protocol.base"]
    assert short_keys(known, known) == {
        "train.lr": "train.lr",
        "finetune.lr": "finetune.lr",
        "loss.csc.weight": "csc.weight",
        "loss.ct.weight": "ct.weight",
        "memory.per_class": "per_class",
        "protocol.base": "B",
    }


def test_lists_in_labels_have_no_separator_of_settings() -> None:
    settings = [{"method": "lucir", "milestones": value} for value in ([10, 15], [20], None)]
    assert label_groups(settings, ["", "", ""]) == [
        "lucir, milestones=[10,15]",
        "lucir, milestones=[20]",
        "lucir, milestones=none",
    ]


def test_equal_labels_are_numbered() -> None:
    """Datasets in memory have the same settings and different data."""
    settings = [{"method": "lucir", "dataset": "arrays"}] * 3
    assert label_groups(settings, ["", "", "2 of 4 tasks"]) == ["lucir", "lucir #2", "lucir, 2 of 4 tasks"]
