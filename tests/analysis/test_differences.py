"""Whether groups may be compared at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from cscct.analysis.differences import find_differences
from synthetic import groups_in, make_run


def differences(folder: Path) -> tuple[list[str], list[str]]:
    found = find_differences(groups_in(folder))
    return found.experiments, found.training


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


def test_settings_of_different_datasets_are_not_listed_one_by_one(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir", "cifar100", done=1, status="running")
    loud, _ = differences(tmp_path)
    assert any(sentence.startswith("dataset: ") for sentence in loud)
    assert not any("data.transform" in sentence for sentence in loud)
