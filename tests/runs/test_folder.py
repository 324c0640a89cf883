"""Run folders and first tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import Silent, run_quietly, settings_for
from cscct.config import Settings
from cscct.errors import UserError
from cscct.runs.files import weights_sha256, write_text
from cscct.runs.first_tasks import FirstTaskCache, first_task_fingerprint
from cscct.runs.folder import RunFolder

SMALL = ("train.epochs=2", "data.train_per_class=20")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_text(path, "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_states_of_a_folder(tmp_path: Path) -> None:
    settings, folder = settings_for("lucir"), RunFolder(tmp_path / "run")
    assert folder.state(settings) == "free"
    folder.create(settings)
    assert folder.state(settings) == "unfinished"
    folder.write_result({"status": "finished"})
    assert folder.state(settings) == "finished"
    with pytest.raises(UserError, match="another run"):
        folder.state(settings_for("lucir", "digits", "seed=2"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds other files"):
        RunFolder(tmp_path / "other").state(settings)
    with pytest.raises(UserError, match="is a file"):
        RunFolder(tmp_path / "other" / "thesis.tex").state(settings)


def test_hash_sees_names_shapes_and_bits() -> None:
    one = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    same = {"b": torch.ones(1), "a": torch.zeros(2, 3)}
    assert weights_sha256(one) == weights_sha256(same)
    others = [{**one, "b": torch.ones(1) + 1e-7}, {**one, "a": torch.zeros(3, 2)}, {"a": one["a"], "c": one["b"]}]
    assert len({weights_sha256(other) for other in [one, *others]}) == 4


SAME = ["lucir+csc", "lucir+ct", "lucir+cscct", "icarl", "icarl+cscct", "replay"]
SAME_SETS = [
    "memory.per_class=3",
    "protocol.step=3",
    "loss.less_forget.weight=1",
    "predict.headline=nme",
    "runtime.fold=false",
    "runtime.compile=frozen",
]
OTHER_SETS = [
    "seed=2",
    "train.lr=0.2",
    "protocol.base=5",
    "network.depth=14",
    "data.train_per_class=9",
    "loss.cross_entropy.weight=2",
    "data.order=natural",
    "runtime.threads=7",
    "runtime.compile=all",
]


def test_fingerprint_holds_what_the_first_task_depends_on() -> None:
    def print_of(method: str, *sets: str) -> str:
        settings: Settings = settings_for(method, "digits", *sets)
        return first_task_fingerprint(settings, "data")

    lucir = print_of("lucir")
    assert {print_of(method) for method in SAME} == {lucir}
    assert {print_of("lucir", setting) for setting in SAME_SETS} == {lucir}
    assert len({lucir, *(print_of("lucir", setting) for setting in OTHER_SETS)}) == len(OTHER_SETS) + 1
    assert print_of("podnet") != lucir
    assert first_task_fingerprint(settings_for("lucir"), "other data") != lucir


def test_a_shared_first_task_changes_nothing_but_the_time(tmp_path: Path) -> None:
    alone = run_quietly(tmp_path / "alone", "lucir+cscct", *SMALL)
    shared = tmp_path / "first"
    leader, follower = Silent(), Silent()
    run_quietly(tmp_path / "leader", "icarl", *SMALL, first_tasks=shared, listener=leader)
    result = run_quietly(tmp_path / "follower", "lucir+cscct", *SMALL, first_tasks=shared, listener=follower)
    assert leader.skipped_images == 0
    assert follower.skipped_images == 4 * 20 * 2
    assert {record["task"] for record in follower.epochs} == {1, 2, 3}
    assert result["weights_sha256"] == alone["weights_sha256"]
    assert result["matrix"] == alone["matrix"]
    assert len(list(shared.iterdir())) == 1
    assert FirstTaskCache(shared).get("nothing") is None
