"""From folders to groups."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from cscct.analysis.differences import find_differences
from cscct.analysis.load import Group, group_runs, read_runs
from cscct.errors import UserError
from cscct.report import find_runs, write_report
from cscct.runs.folder import RunFolder
from synthetic import make_run


def groups_in(folder: Path, warnings: list[str] | None = None) -> list[Group]:
    return group_runs(read_runs(find_runs([folder]), (warnings if warnings is not None else []).append))


def labels_in(folder: Path) -> list[str]:
    return [group.label for group in groups_in(folder)]


def test_runs_are_found_two_levels_down_and_once(tmp_path: Path) -> None:
    for name in ("a", "study/b", "study/deep/c"):
        make_run(tmp_path / name)
    (tmp_path / "study" / "first-tasks").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("model: other\n")
    found = find_runs([tmp_path / "study", tmp_path / "a", tmp_path / "study" / "b"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["study/b", "study/deep/c", "a"]
    assert len(find_runs([tmp_path])) == 2  # c is three levels down


def test_what_is_no_run_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("model: other\n")
    (tmp_path / "file").touch()
    for name, sentence in {"empty": "no run", "foreign": "no run", "file": "is a file", "nowhere": "no folder"}.items():
        with pytest.raises(UserError, match=sentence) as caught:
            find_runs([tmp_path / name])
        assert name in str(caught.value)


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


@pytest.mark.parametrize(("half", "whole"), [("a", "b"), ("b", "a")])
def test_a_run_given_twice_counts_once(tmp_path: Path, half: str, whole: str) -> None:
    make_run(tmp_path / half, done=1, status="running")
    make_run(tmp_path / whole)
    warnings: list[str] = []
    (group,) = groups_in(tmp_path, warnings)
    assert [run.path.name for run in group.runs] == [whole]
    assert f"{half} is left out" in warnings[0]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"status": "finished", "tasks": [{}]}', '{"tasks": [{"classes": ["1"]}]}']
)
def test_a_damaged_result_is_named(tmp_path: Path, text: str) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"a/result\.json is damaged"):
        groups_in(tmp_path)


def test_a_run_of_version_0_2_is_the_same_run(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=2)
    path = tmp_path / "b" / "config.yaml"
    config = yaml.safe_load(path.read_text()) | {"cscct_version": "0.2.0"}
    config["runtime"] |= config.pop("numerics")  # where these settings stood in 0.2
    path.write_text(yaml.safe_dump(config))
    (group,) = groups_in(tmp_path)
    assert group.seeds == (1, 2)


def test_methods_losses_and_datasets_need_not_be_known(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    for name in ("config.yaml", "result.json"):
        path = tmp_path / "a" / name
        path.write_text(path.read_text().replace("lucir", "foreign").replace("less_forget", "other_loss"))
    (group,) = groups_in(tmp_path)
    assert group.method == "foreign"
    assert "loss.other_loss.weight" in group.effective


def test_small_floats_are_read(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    folder = RunFolder(tmp_path / "a")
    folder.save_task(1, {"similarity": torch.full((2, 4), 0.5, dtype=torch.bfloat16)})
    (group,) = groups_in(tmp_path)
    assert (group.runs[0].tensors(1)["similarity"] == 0.5).all()


def differences(folder: Path) -> tuple[list[str], list[str]]:
    found = find_differences(groups_in(folder))
    return found.experiments, found.recipes


def test_equal_protocols_are_silent(tmp_path: Path) -> None:
    for method in ("lucir", "lucir+csc", "lucir+cscct"):
        make_run(tmp_path / method, method)
    assert differences(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("protocol.base=6", "B, classes of the first task: 4 for lucir, B=4 C=2; 6 for"),
        ("memory.per_class=10", "memory per class: 5 for"),
        ("data.train_per_class=9", "training images per class: none for"),
        ("seed=2", "seeds: 1 for lucir; 2 for lucir+cscct"),
        ("train.epochs=3", "train.epochs: 20 for lucir; 3 for lucir+cscct"),  # one family: its recipe does not say so
        ("predict.headline=nme", "predict.headline: classifier for"),
    ],
)
def test_different_experiments_are_loud(tmp_path: Path, setting: str, told: str) -> None:
    make_run(tmp_path / "a", "lucir")
    seed = int(setting.removeprefix("seed=")) if setting.startswith("seed=") else 1
    make_run(tmp_path / "b", "lucir+cscct", "digits", setting, seed=seed)
    loud, _ = differences(tmp_path)
    assert any(told in sentence for sentence in loud), loud


def test_settings_of_different_datasets_are_not_listed_one_by_one(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir", "cifar100", done=1, status="running")
    loud, _ = differences(tmp_path)
    assert any(sentence.startswith("dataset: ") for sentence in loud)
    assert not any("data.transform" in sentence for sentence in loud)


def test_different_families_are_only_noted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "podnet")
    loud, quiet = differences(tmp_path)
    assert loud == []
    assert "network.head: cosine for lucir; proxies for podnet" in quiet
    assert "finetune.epochs: none for lucir; 10 for podnet" in quiet
    assert not any(sentence.startswith("loss.") for sentence in quiet)


def test_other_classes_in_the_same_protocol_are_loud(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir+csc", names=list("abcdefghij"))
    loud, _ = differences(tmp_path)
    assert len(loud) == 1
    assert "the classes themselves" in loud[0]
