"""`cscct config` prints the settings of a run."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from conftest import settings_for
from cscct import cli

Call = Callable[..., subprocess.CompletedProcess[str]]


def printed(*arguments: str) -> str:
    answer = CliRunner().invoke(cli.app, ["config", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


def test_config_matches_the_run(cscct: Call, tmp_path: Path) -> None:
    arguments = (
        "lucir+cscct",
        "digits",
        "--set",
        "train.epochs=1",
        "--set",
        "data.train_per_class=4",
        "--threads",
        "1",
    )
    arguments = (*arguments, "--device", "cpu", "-C", "3", "--seed", "7", "--precision", "32-true")
    done = cscct("run", *arguments, "--out", "r", "--quiet")
    assert done.returncode == 0, done.stderr
    assert printed(*arguments) == (tmp_path / "r" / "config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("dataset", ["cifar100", "folder"])
def test_changed(dataset: str, tmp_path: Path) -> None:
    assert yaml.safe_load(printed("podnet", dataset, "--changed")) == {"method": "podnet", "dataset": dataset}
    arguments = ("--set", "train.epochs=80", "--set", "loss.pod_flat=null", "--seed", "3", "--precision", "bf16-mixed")
    actual = yaml.safe_load(printed("podnet", dataset, *arguments, "--changed"))
    assert actual["seed"] == 3
    assert actual["train"]["epochs"] == 80
    assert actual["loss"] == {"pod_flat": None}
    assert actual["numerics"] == {"precision": "bf16-mixed"}
    assert not {"cscct_version", "memory", "network", "protocol"} & set(actual)
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(actual), encoding="utf-8")
    assert printed("--config", str(file)) == printed("podnet", dataset, *arguments)


def test_changed_recipe() -> None:
    actual = json.loads(printed("lucir", "cifar100", "--recipe", "printed", "--changed", "--json"))
    assert actual["recipe"] == "printed"
    assert actual["train"]["lr"] == settings_for("lucir", "cifar100", recipe="printed").train.lr
