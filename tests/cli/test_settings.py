"""`cscct config` prints what a run would use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from conftest import settings_for
from cscct import cli

Call = Callable[..., subprocess.CompletedProcess[str]]


def shown(*words: str) -> str:
    answer = CliRunner().invoke(cli.app, ["config", *words], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


def test_it_is_what_the_run_records(cscct: Call, tmp_path: Path) -> None:
    words = ("lucir+cscct", "digits", "--set", "train.epochs=1", "--set", "data.train_per_class=4", "--threads", "1")
    words = (*words, "--device", "cpu", "-C", "3", "--seed", "7")
    done = cscct("run", *words, "--out", "r", "--quiet")
    assert done.returncode == 0, done.stderr
    assert shown(*words) == (tmp_path / "r" / "config.yaml").read_text(encoding="utf-8")


def test_neither_data_nor_torch_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys; from cscct.cli import app; app(['config', 'podnet+cscct', 'imagenet-subset', '--json'], "
        "standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["network"]["backbone"] == "podnet-resnet18"


@pytest.mark.parametrize("dataset", ["cifar100", "folder"])
def test_only_what_was_changed(dataset: str, tmp_path: Path) -> None:
    assert yaml.safe_load(shown("podnet", dataset, "--changed")) == {"method": "podnet", "dataset": dataset}
    words = ("--set", "train.epochs=80", "--set", "loss.pod_flat=null", "--seed", "3", "--precision", "bf16-mixed")
    found = yaml.safe_load(shown("podnet", dataset, *words, "--changed"))
    assert found["seed"] == 3
    assert found["train"]["epochs"] == 80
    assert found["loss"] == {"pod_flat": None}
    assert found["numerics"] == {"precision": "bf16-mixed"}
    assert not {"cscct_version", "memory", "network", "protocol"} & set(found)
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(found), encoding="utf-8")
    assert shown("--config", str(file)) == shown("podnet", dataset, *words)


def test_the_recipe_is_a_change() -> None:
    found = json.loads(shown("lucir", "cifar100", "--recipe", "printed", "--changed", "--json"))
    assert found["recipe"] == "printed"
    assert found["train"]["lr"] == settings_for("lucir", "cifar100", recipe="printed").train.lr
