"""From runs to groups."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cscct.analysis.groups import group_plan
from cscct.errors import UserError
from cscct.report import write_report
from planning import QUICK, small_plan
from synthetic import groups_in, make_run


def labels_in(folder: Path) -> list[str]:
    return [group.label for group in groups_in(folder)]


def test_groups_differ_by_more_than_the_seed(tmp_path: Path) -> None:
    for seed in (2, 1):
        for method in ("lucir+cscct", "lucir"):
            make_run(tmp_path / f"{method}-{seed}", method, seed=seed)
    make_run(tmp_path / "device", "lucir", "digits", "runtime.eval_batch_size=7", "memory.total=9", seed=3)
    groups = groups_in(tmp_path)
    assert [(group.label, group.seeds) for group in groups] == [("lucir", (1, 2, 3)), ("lucir+cscct", (1, 2))]


def test_labels_say_what_sets_groups_apart(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir", "digits", "protocol.base=6")
    make_run(tmp_path / "b", "lucir", "digits", "memory.policy=total", "memory.total=100")
    make_run(tmp_path / "c", "podnet")
    assert labels_in(tmp_path) == [
        "lucir, B=6 C=2, memory 5",
        "lucir, B=4 C=2, memory 100 in all",
        "podnet, B=4 C=2, memory 5",
    ]
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    make_run(tmp_path / "d", "podnet", "digits", "loss.nca.margin=0.3")
    make_run(tmp_path / "e", "lucir")
    assert labels_in(tmp_path) == ["podnet, nca.margin=0.6", "podnet, nca.margin=0.3", "lucir"]


def test_an_unfinished_run_is_a_group_of_its_own_and_none_done_is_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1)
    make_run(tmp_path / "b", seed=2, done=2, status="running")
    make_run(tmp_path / "c", seed=3, done=0, status="running")
    warnings: list[str] = []
    assert [group.label for group in groups_in(tmp_path, warnings)] == ["lucir", "lucir, 2 of 4 tasks"]
    assert len(warnings) == 1
    assert "c is left out" in warnings[0]
    with pytest.raises(UserError, match="nothing to report"):
        write_report([tmp_path / "c"], tmp_path / "out", warn=warnings.append)
    assert not (tmp_path / "out").exists()


def test_classes_are_not_averaged_over_different_orders(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), seed=seed)  # digits: the order comes from the seed
    (group,) = groups_in(tmp_path)
    assert [run.seed for run in group.comparable] == [1]
    assert "the class order differs" in group.averaging


def test_another_precision_makes_another_group(tmp_path: Path) -> None:
    """Under its old name too: a run in half precision is not its twin in full precision."""
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", "lucir", "digits", "runtime.precision=bf16-mixed")
    assert labels_in(tmp_path) == ["lucir, numerics.precision=32-true", "lucir, numerics.precision=bf16-mixed"]


def test_a_plan_has_groups_before_its_runs_are_finished(tmp_path: Path) -> None:
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


def test_labels_on_several_datasets_name_the_setting_that_differs(tmp_path: Path) -> None:
    """Most settings differ between datasets, but within one only the weight does."""
    make_run(tmp_path / "a", "lucir+csc")
    for weight in (1.0, 5.0):
        make_run(tmp_path / str(weight), "lucir+csc", "cifar100", f"loss.csc.weight={weight}", done=1, status="running")
    assert labels_in(tmp_path) == [
        "lucir+csc, cifar100, csc.weight=1, 1 of 11 tasks",
        "lucir+csc, cifar100, csc.weight=5, 1 of 11 tasks",
        "lucir+csc, digits",
    ]


def test_labels_stay_distinct_where_many_settings_differ(tmp_path: Path) -> None:
    sets = [
        "train.lr=0.2",
        "train.momentum=0.5",
        "train.batch_size=16",
        "network.depth=14",
        "loss.less_forget.weight=9",
    ]
    make_run(tmp_path / "a", "lucir", "digits")
    make_run(tmp_path / "b", "lucir", "digits", *sets)
    make_run(tmp_path / "c", "lucir", "digits", *sets, "train.weight_decay=0.001")
    labels = labels_in(tmp_path)
    assert len(set(labels)) == 3
    assert not [label for label in labels if "#" in label or label.count("=") > 3], labels
    assert "weight_decay=0.001" in labels[2]
