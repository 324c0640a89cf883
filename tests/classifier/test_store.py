"""A model on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cscct import IncrementalClassifier, RunFailed, UserError, load
from cscct.classifier.store import ModelFolder, is_model_folder
from cscct.runs import files
from small_models import Colours, blobs, colours_model, pictures


def test_a_saved_model_answers_as_before(tmp_path: Path) -> None:
    model = colours_model()
    model.save(tmp_path / "m", "first")
    for again in (
        IncrementalClassifier.load(tmp_path / "m", backbone=Colours()),
        load(tmp_path / "m", backbone=Colours()),
    ):
        queries = pictures((90, 60, 90), 4)
        np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
        assert again.exemplars_ == model.exemplars_
        assert again.report_ == model.report_
        assert again.history_ == model.history_


def test_versions_can_be_undone_and_restored(tmp_path: Path) -> None:
    x, y = blobs(4, 6)
    model = IncrementalClassifier(None).learn(x[y < 2], y[y < 2])
    folder = ModelFolder(tmp_path / "m")
    assert folder.commit(model, "two") == 1
    assert folder.commit(model.learn(x[y >= 2], y[y >= 2]), "four") == 2
    assert [(one.message, one.classes, one.images) for one in folder.versions()] == [
        ("two", [0, 1], 12),
        ("four", [0, 1, 2, 3], 24),
    ]
    assert folder.undo().number == 1
    assert list(folder.load().classes_) == [0, 1]
    assert folder.restore(2).current
    assert list(folder.load().classes_) == [0, 1, 2, 3]
    assert list(folder.load(1).classes_) == [0, 1]
    folder.discard_history()
    assert [one.number for one in folder.versions()] == [2]


class Killed(BaseException):
    """The process ends here."""


def die_before(operation: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets so many operations on files happen; the next one never does."""
    done: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) == operation:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return call

    for name in ("replace", "unlink", "mkdir"):
        monkeypatch.setattr(Path, name, counted(name, getattr(Path, name)))
    monkeypatch.setattr(files, "open_own", counted("open", files.open_own))
    return done


@pytest.mark.parametrize("first", [True, False])
def test_a_commit_that_is_killed_anywhere_leaves_the_model_as_it_was(first: bool, tmp_path: Path) -> None:
    x, y = blobs(3, 4, width=5)
    small = IncrementalClassifier(None).learn(x[y < 2], y[y < 2])
    large = IncrementalClassifier(None).learn(x, y)
    steps = 0
    while True:
        folder = ModelFolder(tmp_path / str(steps))
        if not first:
            folder.commit(small, "small")
        with pytest.MonkeyPatch.context() as patch:
            done = die_before(steps, patch)
            try:
                folder.commit(large, "large")
                survived = True
            except Killed:
                survived = False
        if survived and len(done) < steps:
            break
        switched = is_model_folder(folder.path) and list(folder.load().classes_) == [0, 1, 2]
        if not switched and first:
            assert not is_model_folder(folder.path)
        elif not switched:
            assert list(folder.load().classes_) == [0, 1]
            assert [one.message for one in folder.versions()] == ["small"]
        assert folder.commit(large, "again") == (1 if first else 2) + switched
        assert list(folder.load().classes_) == [0, 1, 2]
        used = {name for number in folder._numbers(folder._pointer()) for name in folder._record(number).model.files()}
        assert {path.name for path in (folder.path / "files").iterdir()} == used
        steps += 1
    assert steps > 10


def test_damage_is_noticed_and_told(tmp_path: Path) -> None:
    model = colours_model()
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    parts = [path for path in folder.path.rglob("*") if path.is_file() and path.name != ".lock"]
    assert len(parts) > 10
    for path in parts:
        whole = path.read_bytes()
        for broken in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[: len(whole) // 2], b""):
            path.write_bytes(broken)
            if broken == whole:
                continue
            with pytest.raises(UserError, match=path.name):
                folder.load(backbone=Colours())
        path.unlink()
        with pytest.raises(UserError, match=path.name if path.name != "model.json" else "no model in"):
            folder.load(backbone=Colours())
        os.mkfifo(path)
        with pytest.raises(UserError, match=path.name if path.name != "model.json" else "no model in|is no file"):
            folder.load(backbone=Colours())
        path.unlink()
        path.write_bytes(whole)
    folder.load(backbone=Colours())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m["classes"][0].update(statistics="../../secret.safetensors"), "pattern"),
        (lambda m: m["classes"][0].update(exemplars=["/etc/passwd"]), "pattern"),
        (lambda m: m["classes"][0].update(count=0), "greater than or equal"),
        (lambda m: m["classes"][0].update(count=2), "statistics of the class"),
        (lambda m: m["classes"][0].update(label=m["classes"][1]["label"]), "labels"),
        (lambda m: m["classes"][0].update(label=7), "labels"),
        (lambda m: m["classes"][0].update(statistics=m["predictor"]), "statistics of the class"),
        (lambda m: m.update(predictor=m["classes"][0]["statistics"]), "predictor of the model"),
        (lambda m: m.update(features=3), "features"),
        (lambda m: m.update(features=10**12), "features"),
        (lambda m: m["params"].update(predictor="eval"), "not known here"),
        (lambda m: m["params"].update(command="rm"), "command"),
        (lambda m: m["params"].update(batch_size="many"), "batch_size"),
        (lambda m: m["params"].update(image_size=-1), "image_size"),
        (lambda m: m["transform"].update(size=0), "size"),
        (lambda m: m.update(backbone="nothing"), "nothing"),
        (lambda m: m.update(classes="all"), "classes"),
        (lambda m: m.update(temperature=0.0), "predictor of the model"),
        (lambda m: m.update(report={"new": 5}), "report"),
        (lambda m: m.update(extra=1), "extra"),
    ],
)
def test_a_record_that_somebody_changed_is_refused(
    change: Callable[[dict[str, Any]], None], told: str, tmp_path: Path
) -> None:
    folder = ModelFolder(tmp_path / "m")
    folder.commit(colours_model())
    path = folder.path / "versions" / "0001.json"
    record = json.loads(path.read_text())
    change(record["model"])
    path.write_text(json.dumps(record))
    backbone = Colours() if record["model"]["backbone"] == "custom" else None
    with pytest.raises(UserError, match=told):
        folder.load(backbone=backbone)


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    for name in ("files", "versions"):
        folder = ModelFolder(tmp_path / name)
        folder.path.mkdir()
        (folder.path / name).symlink_to(elsewhere)
        with pytest.raises(UserError, match="link"):
            folder.commit(model)
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    file = next((folder.path / "files").iterdir())
    (elsewhere / "target").write_bytes(b"mine")
    file.unlink()
    file.symlink_to(elsewhere / "target")
    folder.commit(model)
    assert (elsewhere / "target").read_bytes() == b"mine"
    assert [path.name for path in elsewhere.iterdir()] == ["target"]
    folder.load()


def test_an_old_version_that_is_damaged_stops_nothing_else(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "m")
    x, y = blobs(3, 4)
    model = IncrementalClassifier(None).learn(x, y)
    folder.commit(model)
    folder.commit(model)
    (folder.path / "versions" / "0001.json").write_text("{")
    folder.commit(model)
    assert [one.number for one in folder.versions()] == [1, 2, 3]
    assert "damaged" in folder.versions()[0].message
    assert folder.undo().number == 2
    with pytest.raises(UserError, match=r"0001\.json"):
        folder.undo()
    assert folder.load().class_names == ("0", "1", "2")


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    with folder.lock():
        folder.load()
        with pytest.raises(UserError, match=r"The model in .* is being worked on by process"):
            ModelFolder(tmp_path / "m").commit(model)


def test_what_another_process_did_is_not_lost(tmp_path: Path) -> None:
    x, y = blobs(3, 4)
    folder = ModelFolder(tmp_path / "m")
    assert folder.current() == 0
    folder.commit(IncrementalClassifier(None).learn(x[y == 0], y[y == 0]), based_on=0)
    mine, before = folder.load(), folder.current()
    folder.commit(folder.load().learn(x[y == 1], y[y == 1]), "theirs", based_on=1)
    with pytest.raises(RunFailed, match="changed meanwhile"):
        folder.commit(mine.learn(x[y == 2], y[y == 2]), based_on=before)
    assert folder.load().class_names == ("0", "1")
    assert folder.current() == 2


def test_other_folders_are_not_taken_for_models(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="other files and no model"):
        model.save(tmp_path)
    with pytest.raises(UserError, match="no model in"):
        ModelFolder(tmp_path / "none").load()
    model.save(tmp_path / "m")
    with pytest.raises(UserError, match="no version 9; it has 1"):
        ModelFolder(tmp_path / "m").load(9)
    with pytest.raises(UserError, match="no earlier version"):
        ModelFolder(tmp_path / "m").undo()
    (tmp_path / "m" / "model.json").write_text('{"format": 99, "current": 1, "newest": 1}')
    with pytest.raises(UserError, match="newer version of cscct"):
        IncrementalClassifier.load(tmp_path / "m")


def test_what_versions_share_is_stored_once(tmp_path: Path) -> None:
    model = colours_model()
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    before = {path.name for path in (folder.path / "files").iterdir()}
    folder.commit(model.learn(pictures((60, 200, 60), 3, 2), "green"))
    added = {path.name for path in (folder.path / "files").iterdir()} - before
    assert len(added) == 3 + 2  # three exemplars, the statistics of the class and the predictor
    model.forget(["red", "blue"])
    folder.commit(model)
    folder.discard_history()
    left = {path.name for path in (folder.path / "files").iterdir()}
    assert len(left) == 3 + 2 + 1  # and the weights
    assert folder.load(backbone=Colours()).class_names == ("green",)
    folder.commit(folder.load(backbone=Colours()).forget("green"))
    assert folder.load(backbone=Colours()).learn(pictures((60, 200, 60), 3, 2), "green").class_names == ("green",)


def test_labels_of_all_kinds_come_back(tmp_path: Path) -> None:
    x, y = blobs(3, 4)
    for number, labels in enumerate(([0, 1, 2], ["a/../b", "ü \n", "1"], [False, True])):
        chosen = y < len(labels)
        model = IncrementalClassifier(None).learn(x[chosen], [labels[i] for i in y[chosen]])
        model.save(tmp_path / str(number))
        again = IncrementalClassifier.load(tmp_path / str(number))
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.classes_.dtype == model.classes_.dtype


def test_settings_that_are_numbers_of_numpy(tmp_path: Path) -> None:
    model = IncrementalClassifier(None, memory_per_class=np.int64(3), memory_mb=np.float32(2)).learn(*blobs(2, 4))
    model.save(tmp_path / "m")
    assert IncrementalClassifier.load(tmp_path / "m").memory_per_class == 3
    with pytest.raises(UserError, match="memory_mb must be a number"):
        model.set_params(memory_mb=float("inf")).learn(*blobs(2, 4))


def test_a_full_disk_is_told_and_leaves_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "open_own", full)
    with pytest.raises(RunFailed, match=r"No space left.*is as it was"):
        folder.commit(IncrementalClassifier(None).learn(*blobs(3, 4)))
    monkeypatch.undo()
    assert folder.load().class_names == ("0", "1")


def test_folders_of_other_programs_do_not_disturb_a_commit(tmp_path: Path) -> None:
    """As some file servers put them everywhere."""
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    for name in ("files", "versions"):
        (folder.path / name / "@thumbnails.tmp").mkdir()
    assert folder.commit(model) == 2
    assert (folder.path / "files" / "@thumbnails.tmp").is_dir()


def test_texts_that_cannot_be_stored_are_refused(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    with pytest.raises(UserError, match="not valid text"):
        model.save(tmp_path / "m", "caf\udce9")
    assert not is_model_folder(tmp_path / "m")
    with pytest.raises(UserError, match="not valid text"):
        colours_model().learn(pictures((60, 200, 60), 3, 2), "green\0")


def test_one_version_is_current_whatever_happens_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder, other = ModelFolder(tmp_path / "m"), ModelFolder(tmp_path / "m")
    for _ in range(2):
        folder.commit(model)
    real = folder._record

    def record(number: int) -> Any:
        if number == 1:
            other.restore(1)
        return real(number)

    monkeypatch.setattr(folder, "_record", record)
    assert [one.current for one in folder.versions()] == [False, True]


class Twice(Colours):
    """With weights that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Linear(48, 48, bias=False) for _ in range(2))
        self.two.weight = self.one.weight

    def forward(self, images: Tensor) -> Tensor:
        return self.two(self.one(super().forward(images)))


def test_modules_of_users_may_share_weights_and_are_not_changed(tmp_path: Path) -> None:
    model = IncrementalClassifier(Twice(), image_size=16).learn(pictures((200, 60, 60), 5), "red")
    model.learn(pictures((60, 60, 200), 5, 1), "blue").save(tmp_path / "m")
    other = Twice()
    before = other.one.weight.detach().clone()
    again = IncrementalClassifier.load(tmp_path / "m", backbone=other)
    queries = pictures((90, 60, 90), 4)
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
    assert torch.equal(other.one.weight, before)
