"""Differences between the settings of groups."""

from pathlib import Path

import pytest

from cscct.analysis.differences import SettingDifference, find_differences
from synthetic import groups_in, make_run


def differences(folder: Path) -> tuple[list[str], list[str]]:
    """Return the differences between experiments and those in training, as text."""
    result = find_differences(groups_in(folder))
    return list(map(str, result.experiments)), list(map(str, result.training))


def test_equal_protocols_have_no_differences(tmp_path: Path) -> None:
    for method in ("lucir", "lucir+csc", "lucir+cscct"):
        make_run(tmp_path / method, method)
    assert differences(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("protocol.base=6", 'B (classes of the first task): 4 for "lucir, B=4"; 6 for "lucir+cscct, B=6"'),
        ("memory.per_class=10", 'memory per class: 5 for "lucir, per_class=5"; 10 for'),
        ("data.train_per_class=9", "training images per class: none for"),
        ("seed=2", 'seeds: 1 for "lucir"; 2 for "lucir+cscct"'),
        ("train.epochs=3", 'train.epochs: 20 for "lucir"; 3 for "lucir+cscct"'),  # same family, so not by its recipe
        ("predict.predictor=nme", "predict.predictor: classifier for"),
    ],
)
def test_different_experiments(tmp_path: Path, setting: str, expected: str) -> None:
    make_run(tmp_path / "a", "lucir")
    seed = int(setting.removeprefix("seed=")) if setting.startswith("seed=") else 1
    make_run(tmp_path / "b", "lucir+cscct", "digits", setting, seed=seed)
    experiments, _ = differences(tmp_path)
    assert any(expected in line for line in experiments), experiments


def test_training_of_different_families(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "podnet")
    experiments, training = differences(tmp_path)
    assert experiments == []
    assert 'network.head: cosine for "lucir"; proxies for "podnet"' in training
    assert 'finetune.epochs: none for "lucir"; 10 for "podnet"' in training
    assert not any(line.startswith("loss.") for line in training)


def test_different_classes_with_the_same_settings(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir+csc", names=[*"01234", "5", *"abcd"])
    (difference,) = find_differences(groups_in(tmp_path)).experiments
    assert difference.name == "classes"
    assert [Path(path).name for paths in difference.groups.values() for path in paths] == ["a", "b"]
    learned = [name for task in first["tasks"] for name in task["classes"]]
    start = next(place for place, name in enumerate(learned) if name in "6789")  # the first class that differs
    assert next(iter(difference.groups)) == ", ".join(learned[start : start + 3])


def test_different_datasets_hide_the_settings_that_depend_on_them(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir", "cifar100", done=1, status="running")
    experiments, _ = differences(tmp_path)
    assert any(line.startswith("dataset: ") for line in experiments)
    assert not any("data.transform" in line for line in experiments)


def test_labels_with_commas_are_quoted_and_many_groups_counted() -> None:
    few = SettingDifference("memory", {"5": ["lucir, B=4", "icarl, B=4"], "9": ["lucir, B=6"]})
    assert str(few) == 'memory: 5 for "lucir, B=4", "icarl, B=4"; 9 for "lucir, B=6"'
    many = SettingDifference("memory", {"5": [f"a{i}" for i in range(4)], "9": [f"b{i}" for i in range(3)]})
    assert str(many) == "memory: 5 for 4 groups; 9 for 3 groups"
