"""Methods and add-ons, end to end on digits, with several protocols."""

import json
import math
from pathlib import Path

import pytest

from conftest import Silent, run_quietly, settings_for
from cscct.errors import UserError
from cscct.features import DEFAULT_PREDICTORS
from cscct.methods import ADDONS, METHODS, Method, canonical_name, parse_method, register, split_method

BASES = ("replay", "icarl", "lucir", "podnet", "wa", "bic", "er-ace", "der++")
# 4+4+2, 6+3+1 and single classes among them
PROTOCOLS = {"": (4, 2), "+csc": (4, 4), "+ct": (6, 3), "+cscct": (7, 1), "+balanced": (8, 1)}
SIZES = {"": [4, 2, 2, 2], "+csc": [4, 4, 2], "+ct": [6, 3, 1], "+cscct": [7, 1, 1, 1], "+balanced": [8, 1, 1]}
COMBINATIONS = [(base, addition) for base in BASES for addition in ("+cscct", "+balanced")]  # +cscct is +csc and +ct
COMBINATIONS += [(base, addition) for base in ("lucir", "podnet") for addition in ("", "+csc", "+ct")]


def test_all_combinations_are_tried() -> None:
    assert len(COMBINATIONS) == 22
    assert set(METHODS) >= {*BASES, "icarl-bce"}
    assert set(ADDONS) == {"csc", "ct", "cscct", "balanced", "cwd"}


@pytest.mark.parametrize(("base", "addition"), COMBINATIONS, ids="".join)
def test_runs_end_to_end(base: str, addition: str, tmp_path: Path) -> None:
    first, step = PROTOCOLS[addition]
    listener = Silent()
    sets = ("train.epochs=2", "data.train_per_class=30", f"protocol.base={first}", f"protocol.step={step}")
    result = run_quietly(tmp_path / "run", base + addition, *sets, listener=listener)

    assert result["status"] == "finished"
    assert [len(task["classes"]) for task in result["tasks"]] == SIZES[addition]
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    for head in DEFAULT_PREDICTORS:
        matrix = result["matrix"][head]
        assert [len(row) for row in matrix] == list(range(1, len(SIZES[addition]) + 1))
        assert all(0 <= accuracy <= 100 for row in matrix for accuracy in row)
    later = [record["losses"] for record in listener.epochs if record["task"] > 0 and record["stage"] == "train"]
    assert ("csc" in later[0]) == (addition in ("+csc", "+cscct"))
    assert ("balanced_cross_entropy" in later[0]) == (addition == "+balanced")
    assert ("ct" in later[0]) == (addition in ("+ct", "+cscct"))
    assert all(math.isfinite(value) for losses in later for value in losses.values())
    first_task = [record["losses"] for record in listener.epochs if record["task"] == 0]
    assert all(set(losses) in ({"cross_entropy"}, {"nca"}, {"new_cross_entropy"}) for losses in first_task)
    assert bool(listener.warnings) == (addition in ("+csc", "+ct"))  # a shorter last task is said aloud


def test_one_class_at_a_time_from_the_start(tmp_path: Path) -> None:
    """A single class has no gradient and an accuracy of 100 %; later tasks are learned."""
    for method in ("lucir+cscct", "podnet+cscct", "icarl+cscct", "replay"):
        sets = ("train.epochs=1", "protocol.base=1", "protocol.step=1", "data.classes=4", "data.train_per_class=40")
        result = run_quietly(tmp_path / method, method, *sets)
        assert len(result["tasks"]) == 4
        assert result["tasks"][0]["accuracy"] == dict.fromkeys(DEFAULT_PREDICTORS, 100.0)


@pytest.mark.parametrize("base", [*BASES, "icarl-bce"])
def test_every_base_learns(base: str, tmp_path: Path) -> None:
    """Thresholds are far above chance and far below typical results."""
    sets = ("train.epochs=6", "data.train_per_class=60", "protocol.step=3")
    sets += ("finetune.epochs=2",) if base == "podnet" else ()
    result = run_quietly(tmp_path / "run", f"{base}+cscct", *sets)
    assert result["matrix"]["nme"][0][0] > 60  # chance: 25
    assert result["summary"]["nme"]["last_accuracy"] > 35  # chance: 10
    assert result["headline"] == ("nme" if base.startswith("icarl") else "classifier")


def test_additions_keep_their_proportion_to_a_cross_entropy_that_shrinks() -> None:
    for base in ("wa", "bic"):
        loss = settings_for(f"{base}+cscct", "cifar100").loss
        assert {loss[name].weight_scaling for name in ("cross_entropy", "csc", "ct")} == {"new_over_seen"}
        assert (loss["csc"].weight, loss["ct"].weight) == (3.0, 1.5)
        assert "csc" not in settings_for(base, "cifar100").loss
    assert settings_for("lucir+cscct", "cifar100").loss["csc"].weight_scaling == "constant"


def test_names() -> None:
    assert canonical_name("lucir+ct+csc") == "lucir+cscct"
    assert canonical_name("icarl") == "icarl"
    assert parse_method("podnet+ct")[1] == ("ct",)
    assert canonical_name("der++") == "der++"
    assert canonical_name("der+++ct+csc") == "der+++cscct"
    assert split_method("der+++ct+csc") == ("der++", ("ct", "csc"))
    assert split_method("of-a-plugin+cscct") == ("of-a-plugin", ("cscct",))
    wrongs = {
        "lucri": "lucir",
        "lucir+cscc": "cscct",
        "": "cscct list",
        "der++cscct": "der[+][+]",
        "lucir+": "add-on",
    }
    for wrong, near in wrongs.items():
        with pytest.raises(UserError, match=near):
            parse_method(wrong)


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ValueError, match="taken"):
        register(Method("lucir", "another", {}))
    with pytest.raises(ValueError, match="plus"):
        register(Method("a+b", "another", {}))
