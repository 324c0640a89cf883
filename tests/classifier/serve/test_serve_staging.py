"""Photographs that wait, on disk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from cscct.classifier.images import Problem
from cscct.classifier.serve import staging as staging_module
from cscct.classifier.serve.job import _renamed, learn_batch, message_of, own_label
from cscct.classifier.serve.limits import Limits
from cscct.classifier.serve.staging import Staging, read_batch
from cscct.classifier.serve.uploads import Upload
from cscct.classifier.store import ModelFolder
from cscct.errors import RunFailed, UserError
from serving import RED, encoded, folder_fixture, original_fixture  # noqa: F401


def staging_with(folder: Path, count: int) -> Staging:
    staging = Staging(folder, Limits())
    folder.mkdir(parents=True, exist_ok=True)
    photograph = folder.parent / "photograph.png"
    photograph.write_bytes(encoded(RED))
    staging.add("red/..", [Upload(photograph, f"{number}.png") for number in range(count)])
    return staging


def test_it_is_read_back_in_order_and_leftovers_are_removed(tmp_path: Path) -> None:
    staged = staging_with(tmp_path / "staging", 3).all()
    gone = staged.pop(1)
    (tmp_path / "staging" / f"{gone.id}.json").unlink()  # removed first, written last
    (tmp_path / "staging" / f"{'a' * 24}.json").write_text("{")
    again = Staging(tmp_path / "staging", Limits())
    with again.opened():
        assert again.all() == staged
        kept = {path.stem for path in (tmp_path / "staging").iterdir() if not path.name.startswith(".")}
        assert kept == {one.id for one in staged}
        assert again.image(staged[0].id).read_bytes() == encoded(RED)


@pytest.mark.parametrize("learned", [True, False])
def test_after_a_kill_the_versions_tell_what_was_learned(tmp_path: Path, learned: bool) -> None:
    """Between the commit and the removal of what was learned, a server can be killed too."""
    staging = staging_with(tmp_path / "staging", 2)
    batch = staging.begin()
    assert read_batch(staging.folder) == batch
    later = staging_with(tmp_path / "staging", 1).all()
    again = Staging(tmp_path / "staging", Limits())
    with again.opened():
        again.recover(["first", message_of(batch) if learned else "by somebody else"])
        assert again.all() == (later if learned else [*batch.photographs, *later])
        again.recover([message_of(batch)])  # nothing is begun any more
        assert len(again.all()) == (1 if learned else 3)


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "staging")
    with pytest.raises(UserError, match="is a link"), Staging(tmp_path / "staging", Limits()).opened():
        pass
    assert not list((tmp_path / "elsewhere").iterdir())


def test_photographs_are_added_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = staging_with(tmp_path / "staging", 1)
    kept = {path.name for path in before.folder.iterdir()}
    real = staging_module.write_text
    done: list[Path] = []

    def full(path: Path, text: str) -> None:
        done.append(path)
        if len(done) == 2:
            raise OSError(28, "No space left on device")
        real(path, text)

    monkeypatch.setattr(staging_module, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        before.add("red", [Upload(tmp_path / "photograph.png", f"{number}.png") for number in range(3)])
    assert len(before.all()) == 1
    assert {path.name for path in before.folder.iterdir()} == kept


@pytest.mark.parametrize("change", [{"id": "../../precious"}, {"created": "x"}, {"bytes": None}])
def test_records_that_somebody_changed_are_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    """The id of a record becomes part of paths."""
    first, second = staging_with(tmp_path / "model" / "staging", 2).all()
    (tmp_path / "precious.json").write_text("mine")
    (tmp_path / "model" / "staging" / f"{second.id}.json").write_text(json.dumps({**asdict(second), **change}))
    again = Staging(tmp_path / "model" / "staging", Limits())
    with again.opened():
        assert again.all() == [first]
        again.remove(one.id for one in again.all())
    assert (tmp_path / "precious.json").exists()


def test_labels_are_those_of_the_model() -> None:
    assert own_label("3", [1, 3]) == 3
    assert own_label("4", [1, 3]) == 4
    assert own_label("x", [1, 3]) == "x"
    assert own_label("3", ["1", "3"]) == "3"
    assert own_label("3", []) == "3"


def test_problems_are_told_with_the_names_of_the_files(tmp_path: Path) -> None:
    batch = staging_with(tmp_path / "sta ging", 2).begin()
    first, second = (tmp_path / "sta ging" / f"{one.id}.image" for one in batch.photographs)
    problem = Problem("duplicate", str(second), f"the same picture as {first} in the same class")
    renamed = _renamed(problem, tmp_path / "sta ging", batch)
    assert renamed == Problem("duplicate", "1.png", "the same picture as 0.png in the same class")


def test_a_model_that_another_program_changed_meanwhile_is_not_overwritten(folder: Path) -> None:
    staging = staging_with(folder / "staging", 2)
    batch = staging.begin()

    def progress(what: str, done: int, total: int) -> None:
        if ModelFolder(folder).versions()[1].current:
            ModelFolder(folder).undo()

    with pytest.raises(RunFailed, match="was changed meanwhile by another process"):
        learn_batch(folder, batch, progress)
    assert [one.number for one in ModelFolder(folder).versions() if one.current] == [1]
    assert learn_batch(folder, batch, lambda *_: None) == 3
