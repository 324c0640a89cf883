"""`make attack` itself: a few cases of each kind, and that it sees what it looks for."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def attack_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def test_a_few_cases_of_each_kind(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    options = ["--cases=1", "--seed=3", "--workers=1", f"--json={file}"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "attack.py"), *options], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = json.loads(file.read_text())["3"]["kinds"]
    assert list(kinds) == KINDS
    for kind in kinds.values():
        assert kind["cases"] == sum(kind["outcomes"].values()) == 1


def plant(what: str, outside: Path) -> None:
    """Something that a command must not do."""
    if what == "traceback":
        raise ZeroDivisionError
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(60)
    if what == "exit code":
        sys.exit(77)
    if what == "no sentence":
        sys.exit(2)
    (outside / "notes.txt").write_text("changed")


@pytest.mark.parametrize("what", ["traceback", "crash", "hang", "exit code", "no sentence", "changed file outside"])
def test_what_must_not_happen_is_seen(what: str, tmp_path: Path) -> None:
    from watch import Outside, guarded

    outside = Outside(tmp_path / "outside")
    ended = guarded(lambda: plant(what, outside.folder), "planted", tmp_path, limit=2 if what == "hang" else 60)
    faults = ended.faults() + outside.faults()
    assert [fault for fault in faults if fault.startswith(what)], faults
    assert Outside(tmp_path / "other").faults() == []


def test_a_changed_number_is_seen(tmp_path: Path) -> None:
    """A kill after which the run is taken up with another result, as if something had been lost."""
    from kills import Kills, difference
    from small_runs import LUCIR
    from watch import preload

    preload()
    kills = Kills(tmp_path / "shared", commands=(LUCIR,))
    (tmp_path / "whole").mkdir()
    assert kills.attack(40, random.Random(1), tmp_path / "whole").faults == []
    kills.whole[LUCIR]["run/result.json"]["weights_sha256"] = "another"
    (tmp_path / "changed").mkdir()
    (fault,) = kills.attack(40, random.Random(1), tmp_path / "changed").faults
    assert fault.startswith("changed number: run/result.json.weights_sha256")
    assert "2 became 3" in difference({"a": {"b": 2}}, {"a": {"b": 3}})


def test_every_file_operation_is_a_point_to_be_killed_at(tmp_path: Path) -> None:
    """Opened, written, cut in the middle of it, synchronised, renamed, the folder synchronised."""
    from kills import Killer
    from watch import guarded

    def write() -> None:
        from cscct.runs.files import write_text

        Killer(0, tmp_path / "count").install()
        write_text(tmp_path / "file", "content")

    assert guarded(write, "write", tmp_path).code == 0
    assert int((tmp_path / "count").read_text()) == 6


def test_the_page_holds_the_counts() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "page.py"), "--check"], check=False)
    assert done.returncode == 0, "run `make attack` or attack/page.py"
