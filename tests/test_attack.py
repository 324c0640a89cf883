"""`make attack`: one case of each kind, and detection of planted faults."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "attack"
KINDS = ["kills", "damage", "settings", "odd runs", "images", "pickles", "reports", "streams"]
KINDS += ["model folders", "model changes", "requests"]  # not pauses and plugins, whose processes start slowly


@pytest.fixture(autouse=True)
def attack_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def test_a_few_cases_of_each_kind(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    options = ["--cases=1", "--seed=3", "--workers=2", f"--json={file}", *(f"--only={kind}" for kind in KINDS)]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "attack.py"), *options], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = json.loads(file.read_text())["3"]["kinds"]
    assert list(kinds) == KINDS
    for kind in kinds.values():
        assert kind["cases"] == sum(kind["outcomes"].values()) == 1


def plant(kind: str, outside: Path) -> None:
    """Do something that a command must not do."""
    if kind == "traceback":
        raise ZeroDivisionError
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(60)
    if kind == "exit code":
        sys.exit(77)
    if kind == "no message":
        sys.exit(2)
    (outside / "notes.txt").write_text("changed")


@pytest.mark.parametrize("kind", ["traceback", "crash", "hang", "exit code", "no message", "changed file outside"])
def test_planted_faults_are_detected(kind: str, tmp_path: Path) -> None:
    from watch import Outside, run_function

    outside = Outside(tmp_path / "outside")
    completed = run_function(
        lambda: plant(kind, outside.folder), "planted", tmp_path, limit=2 if kind == "hang" else 60
    )
    faults = completed.faults() + outside.faults()
    assert [fault for fault in faults if fault.startswith(kind)], faults
    assert Outside(tmp_path / "other").faults() == []


def test_changed_numbers_are_detected(tmp_path: Path) -> None:
    """A killed run that is continued with another result."""
    from kills import Kills, difference
    from small_runs import LUCIR
    from watch import preload

    preload()
    kills = Kills(tmp_path / "shared", commands=(LUCIR,))
    (tmp_path / "whole").mkdir()
    assert kills.attack(40, random.Random(1), tmp_path / "whole").faults == []
    kills.expected[LUCIR]["run/result.json"]["weights_sha256"] = "another"
    (tmp_path / "changed").mkdir()
    (fault,) = kills.attack(40, random.Random(1), tmp_path / "changed").faults
    assert fault.startswith("changed number: run/result.json.weights_sha256")
    assert "2 became 3" in difference({"a": {"b": 2}}, {"a": {"b": 3}})


def test_number_of_kill_points(tmp_path: Path) -> None:
    """Open, write, half a write, synchronise, rename, synchronise the folder."""
    from kills import Killer
    from watch import run_function

    def write() -> None:
        from cscct.storage import write_text

        Killer(0, tmp_path / "count").install()
        write_text(tmp_path / "file", "content")

    assert run_function(write, "write", tmp_path).code == 0
    assert int((tmp_path / "count").read_text()) == 6


def test_page_is_current() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "page.py"), "--check"], check=False)
    assert done.returncode == 0, "run `make attack` or attack/page.py"
