"""Staged photos on disk."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from cscct.classifier.folder import own_label
from cscct.classifier.serve import staging as staging_module
from cscct.classifier.serve.job import _renamed, learn_batch, message_of
from cscct.classifier.serve.limits import Limits
from cscct.classifier.serve.staging import Staging, read_batch
from cscct.classifier.serve.uploads import Upload
from cscct.classifier.store import ModelFolder
from cscct.data.inputs import InputProblem
from cscct.errors import FolderInUse, RunFailed, UserError
from serving import RED, encoded, folder_fixture, original_fixture  # noqa: F401


def staging_with(folder: Path, count: int) -> Staging:
    staging = Staging(folder, Limits())
    folder.mkdir(parents=True, exist_ok=True)
    photo = folder.parent / "photograph.png"
    photo.write_bytes(encoded(RED))
    staging.add("red/..", [Upload(photo, f"{number}.png") for number in range(count)])
    return staging


def test_photos_are_restored_in_order_and_incomplete_files_removed(tmp_path: Path) -> None:
    staged = staging_with(tmp_path / "staging", 3).all()
    removed = staged.pop(1)
    (tmp_path / "staging" / f"{removed.id}.json").unlink()  # the record is removed first and written last
    (tmp_path / "staging" / f"{'a' * 24}.json").write_text("{")
    reopened = Staging(tmp_path / "staging", Limits())
    with reopened.opened():
        assert reopened.all() == staged
        kept = {path.stem for path in (tmp_path / "staging").iterdir() if not path.name.startswith(".")}
        assert kept == {photo.id for photo in staged}
        assert reopened.image(staged[0].id).read_bytes() == encoded(RED)


@pytest.mark.parametrize("learned", [True, False])
def test_killed_batch_is_recovered_from_version_messages(tmp_path: Path, learned: bool) -> None:
    """A server may be killed between the commit and the removal of the learned photos."""
    staging = staging_with(tmp_path / "staging", 2)
    batch = staging.begin()
    assert read_batch(staging.folder) == batch
    later = staging_with(tmp_path / "staging", 1).all()
    reopened = Staging(tmp_path / "staging", Limits())
    with reopened.opened():
        reopened.recover(["first", message_of(batch) if learned else "unrelated"])
        assert reopened.all() == (later if learned else [*batch.photographs, *later])
        reopened.recover([message_of(batch)])  # the batch is already finished
        assert len(reopened.all()) == (1 if learned else 3)


@pytest.mark.parametrize("error", [UserError("This was worked on."), FolderInUse("The model folder is in use.")])
def test_only_a_held_lock_is_reported_as_another_server(error: UserError, tmp_path: Path) -> None:
    """Errors raised inside the context are not changed."""
    staging = Staging(tmp_path / "staging", Limits())
    with staging.opened(), pytest.raises(UserError, match="is already served by process"), staging.opened():
        pass
    with pytest.raises(UserError) as raised, staging.opened():
        raise error
    assert raised.value is error


def test_symlinked_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "staging")
    with pytest.raises(UserError, match="is a link"), Staging(tmp_path / "staging", Limits()).opened():
        pass
    assert not list((tmp_path / "elsewhere").iterdir())


def test_failed_add_stages_no_photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = staging_with(tmp_path / "staging", 1)
    names = {path.name for path in staging.folder.iterdir()}
    write_text = staging_module.write_text
    written: list[Path] = []

    def full(path: Path, text: str) -> None:
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        write_text(path, text)

    monkeypatch.setattr(staging_module, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        staging.add("red", [Upload(tmp_path / "photograph.png", f"{number}.png") for number in range(3)])
    assert len(staging.all()) == 1
    assert {path.name for path in staging.folder.iterdir()} == names


@pytest.mark.parametrize("change", [{"id": "../../precious"}, {"created": "x"}, {"bytes": None}])
def test_modified_records_are_ignored(tmp_path: Path, change: dict[str, object]) -> None:
    """Paths are built from the id of a record."""
    first, second = staging_with(tmp_path / "model" / "staging", 2).all()
    (tmp_path / "precious.json").write_text("mine")
    (tmp_path / "model" / "staging" / f"{second.id}.json").write_text(json.dumps({**asdict(second), **change}))
    reopened = Staging(tmp_path / "model" / "staging", Limits())
    with reopened.opened():
        assert reopened.all() == [first]
        reopened.remove(photo.id for photo in reopened.all())
    assert (tmp_path / "precious.json").exists()


def test_labels_are_converted_to_the_type_of_the_model() -> None:
    assert own_label("3", [1, 3]) == 3
    assert own_label("4", [1, 3]) == 4
    assert own_label("x", [1, 3]) == "x"
    assert own_label("3", ["1", "3"]) == "3"
    assert own_label("3", []) == "3"


def test_problems_contain_the_uploaded_file_names(tmp_path: Path) -> None:
    batch = staging_with(tmp_path / "sta ging", 2).begin()
    first, second = (tmp_path / "sta ging" / f"{photo.id}.image" for photo in batch.photographs)
    problem = InputProblem("duplicate", str(second), f"the same picture as {first} in the same class")
    renamed = _renamed(problem, tmp_path / "sta ging", batch)
    assert renamed == InputProblem("duplicate", "1.png", "the same picture as 0.png in the same class")


def test_concurrently_changed_model_is_not_overwritten(folder: Path) -> None:
    staging = staging_with(folder / "staging", 2)
    batch = staging.begin()

    def progress(what: str, done: int, total: int) -> None:
        if ModelFolder(folder).versions()[1].current:
            ModelFolder(folder).undo()

    with pytest.raises(RunFailed, match="was changed by another process"):
        learn_batch(folder, batch, progress)
    assert [version.number for version in ModelFolder(folder).versions() if version.current] == [1]
    assert learn_batch(folder, batch, lambda *_: None) == 3
