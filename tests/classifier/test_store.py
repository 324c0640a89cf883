"""Model folders."""

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from cscct import IncrementalClassifier, RunFailed, UserError, load
from cscct.classifier.records import RecordReader
from cscct.classifier.store import ModelFolder
from cscct.classifier.versions import is_model_folder
from cscct.storage import files
from small_models import Colours, blobs, colours_model, pictures


def test_loaded_model_predicts_like_the_saved_one(tmp_path: Path) -> None:
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
    assert [(version.message, version.classes, version.images) for version in folder.versions()] == [
        ("two", [0, 1], 12),
        ("four", [0, 1, 2, 3], 24),
    ]
    assert folder.undo().number == 1
    assert list(folder.load().classes_) == [0, 1]
    assert folder.restore(2).current
    assert list(folder.load().classes_) == [0, 1, 2, 3]
    assert list(folder.load(1).classes_) == [0, 1]
    folder.discard_history()
    assert [version.number for version in folder.versions()] == [2]


class Killed(BaseException):
    """Simulated kill of the process."""


def die_before(operation: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Simulate a kill after a number of file operations. Returns the completed operations."""
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
    monkeypatch.setattr(files, "open_regular", counted("open", files.open_regular))
    return done


@pytest.mark.parametrize("first", [True, False])
def test_killed_commit_does_not_change_the_model(first: bool, tmp_path: Path) -> None:
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
            assert [version.message for version in folder.versions()] == ["small"]
        assert folder.commit(large, "again") == (1 if first else 2) + switched
        assert list(folder.load().classes_) == [0, 1, 2]
        reader = RecordReader(folder.path)
        used = {name for number in folder._numbers(folder._pointer()) for name in reader.record(number).files()}
        assert {path.name for path in (folder.path / "files").iterdir()} == used
        steps += 1
    assert steps > 10


def test_damaged_files_are_reported(tmp_path: Path) -> None:
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
        with pytest.raises(UserError, match=path.name if path.name != "model.json" else "contains no model"):
            folder.load(backbone=Colours())
        os.mkfifo(path)
        with pytest.raises(
            UserError, match=path.name if path.name != "model.json" else "contains no model|not a regular file"
        ):
            folder.load(backbone=Colours())
        path.unlink()
        path.write_bytes(whole)
    folder.load(backbone=Colours())


def without_checksum(folder: ModelFolder) -> dict[str, Any]:
    """Return the first version in the form of version 0.3, which had neither checksums nor blocks."""
    record = asdict(RecordReader(folder.path).record(1))
    return {name: value for name, value in json.loads(json.dumps(record)).items() if not name.endswith("blocks")}


def write_version(folder: ModelFolder, record: dict[str, Any]) -> None:
    (folder.path / "versions" / "0001.json").write_text(json.dumps(record))


def replace_tensors(folder: ModelFolder, name: str, change: Callable[[dict[str, Tensor]], object]) -> str:
    """Store changed tensors under the name of their content, as somebody who changes a model would."""
    tensors = load_tensors((folder.path / "files" / name).read_bytes())
    change(tensors)
    content = save_tensors(tensors)
    new = f"{hashlib.sha256(content).hexdigest()}.safetensors"
    (folder.path / "files" / new).write_bytes(content)
    return new


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["classes"][0].update(statistics="../../secret.safetensors"), "pattern"),
        (lambda m: m["classes"][0].update(exemplars=["/etc/passwd"]), "pattern"),
        (lambda m: m["classes"][0].update(count=0), "greater than or equal"),
        (lambda m: m["classes"][0].update(count=2), "statistics of the class"),
        (lambda m: m["classes"][0].update(count=2**62), "less than or equal"),
        (lambda m: m["classes"][0].update(label=m["classes"][1]["label"]), "labels"),
        (lambda m: m["classes"][0].update(label=7), "labels"),
        (lambda m: m["classes"][0].update(label="a\0b"), "label"),
        (lambda m: [entry.update(label=2**70 + i) for i, entry in enumerate(m["classes"])], "label"),
        (lambda m: m["classes"][0].update(statistics=m["predictor"]), "statistics of the class"),
        (lambda m: m.update(predictor=m["classes"][0]["statistics"]), "predictor of the model"),
        (lambda m: m.update(features=3), "features"),
        (lambda m: m.update(features=10**12), "features"),
        (lambda m: m["params"].update(predictor="eval"), "unknown to this version"),
        (lambda m: m["params"].update(predictor=["lda"]), "unknown to this version"),
        (lambda m: m["params"].update(predictor={}), "unknown to this version"),
        (lambda m: m["params"].update(command="rm"), "command"),
        (lambda m: m["params"].update(batch_size="many"), "batch_size"),
        (lambda m: m["params"].update(image_size=-1), "image_size"),
        (lambda m: m["transform"].update(size=0), "size"),
        (lambda m: m["transform"].update(size=10**6), "size"),
        (lambda m: m["transform"].pop("size"), "size"),
        (lambda m: m["transform"].update(std=[1e-30]), "std"),
        (lambda m: m["transform"].update(std=[0.5, 0.5]), "std"),
        (lambda m: m["transform"].update(mean=[1e30]), "mean"),
        (lambda m: m.update(backbone="nothing"), "nothing"),
        (lambda m: m.update(classes="all"), "classes"),
        (lambda m: m.update(temperature=0.0), "temperature"),
        (lambda m: m.update(temperature=1e308), "temperature"),
        (lambda m: m.update(unit=not m["unit"]), "unit"),
        (lambda m: m.update(tuned=["nobody"]), "trained on"),
        (lambda m: m["history"][0].update(images=math.nan), "not finite"),
        (lambda m: m.update(report={"new": 5}), "report"),
        (lambda m: m.update(report={"after": {"red": [1, 2, 3]}}), "report"),
        (lambda m: m.update(extra=1), "extra"),
    ],
)
def test_modified_record_is_rejected(change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "m")
    folder.commit(colours_model())
    record = without_checksum(folder)
    write_version(folder, record)
    folder.load(backbone=Colours())
    change(record["model"])
    write_version(folder, record)
    backbone = Colours() if record["model"]["backbone"] == "custom" else None
    with pytest.raises(UserError, match=message):
        folder.load(backbone=backbone)


@pytest.mark.parametrize(
    ("file", "tensor", "value"),
    [
        ("predictor", "weight", math.nan),
        ("predictor", "bias", math.inf),
        ("weights", "first.weight", math.nan),
        ("weights", "norm.running_mean", math.inf),
        ("weights", "norm.running_var", -1.0),
        ("statistics", "directions", 1e9),
    ],
)
def test_tensors_out_of_range_are_rejected(file: str, tensor: str, value: float, tmp_path: Path) -> None:
    class Normalised(TiedWeights):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(48)

        def forward(self, images: Tensor) -> Tensor:
            return self.norm(super().forward(images))

    folder = ModelFolder(tmp_path / "m")
    model = IncrementalClassifier(Normalised(), image_size=16).learn(pictures((200, 60, 60), 5), "red")
    folder.commit(model.learn(pictures((60, 60, 200), 5, 1), "blue"))
    record = without_checksum(folder)
    holder = record["model"]["classes"][0] if file == "statistics" else record["model"]

    def change(tensors: dict[str, Tensor]) -> None:
        (name,) = [name for name in tensors if name.endswith(tensor)]
        tensors[name].view(-1)[0] = value

    holder[file] = replace_tensors(folder, holder[file], change)
    write_version(folder, record)
    with pytest.raises(UserError, match="damaged"):
        folder.load(backbone=Normalised())


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all plain values in JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list):
        yield path
    for key, item in items:
        yield from leaves(item, (*path, key))


def test_every_recorded_value_is_covered_by_a_checksum(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "m")
    folder.commit(IncrementalClassifier(None).learn(*blobs(3, 4)))
    files = [folder.path / "model.json", folder.path / "versions" / "0001.json"]
    changes = 0
    for file in files:
        whole = file.read_text()
        for *path, last in leaves(json.loads(whole)):
            content = json.loads(whole)
            holder = functools.reduce(lambda node, key: node[key], path, content)
            holder[last] = {True: False, False: True}.get(holder[last], 1) if holder[last] != 1 else 2
            file.write_text(json.dumps(content))
            with pytest.raises(UserError, match=rf"{file.name} is damaged|newer version"):
                folder.load()
            changes += 1
        file.write_text(whole)
    assert changes > 30
    folder.load()


def test_versions_that_are_swapped_are_rejected(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    for _ in range(2):
        folder.commit(model)
    (folder.path / "versions" / "0001.json").replace(folder.path / "versions" / "0002.json")
    with pytest.raises(UserError, match="not version 2"):
        folder.load()
    with pytest.raises(UserError, match="undo --to"):
        folder.current_version()


def test_a_version_is_as_large_as_what_it_adds(tmp_path: Path) -> None:
    """No files of earlier versions are written again, and only blocks that changed are stored."""
    x, y = blobs(20, 2, width=5)
    model = IncrementalClassifier(None, method="ncm")
    folder = ModelFolder(tmp_path / "m")
    added, read = [], []
    real = RecordReader.record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordReader, "record", lambda reader, number: (read.append(number), real(reader, number))[1])
        for label in range(20):
            before = {path.name for path in folder.path.glob("files/*")}
            read.clear()
            folder.commit(model.learn(x[y == label], y[y == label]))
            assert read in ([label + 1], [1, 1])  # no earlier version is read; the first sweeps leftovers
            added.append({path.name for path in folder.path.glob("files/*")} - before)
    # statistics, predictor, evaluation, novelty, a block of classes and a block of the history
    assert {len(names) for names in added} <= {5, 6}  # full blocks of the same history are one file
    sizes = [path.stat().st_size for path in sorted(folder.path.glob("versions/*.json"))]
    assert sizes[-1] < 20 * 120
    assert folder.load(1).classes_.tolist() == [0]
    assert folder.load(18).classes_.tolist() == list(range(18))


@pytest.mark.parametrize("keep", [1, 2])
def test_older_versions_are_removed(keep: int, tmp_path: Path) -> None:
    x, y = blobs(5, 3)
    folder = ModelFolder(tmp_path / "m")
    model = IncrementalClassifier(None)
    for label in range(4):
        folder.commit(model.learn(x[y == label], y[y == label]), keep_versions=keep if label == 2 else None)
    assert [version.number for version in folder.versions()] == list(range(5 - keep, 5))
    used = {name for number in range(5 - keep, 5) for name in RecordReader(folder.path).record(number).files()}
    assert {path.name for path in folder.path.glob("files/*")} == used
    model.save(folder.path, keep_versions=0)
    model.save(folder.path)
    assert len(folder.versions()) == keep + 2
    with pytest.raises(UserError, match="keep_versions"):
        model.save(folder.path, keep_versions=-1)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
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


def test_damaged_old_version_does_not_affect_the_others(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "m")
    x, y = blobs(3, 4)
    model = IncrementalClassifier(None).learn(x, y)
    folder.commit(model)
    folder.commit(model)
    (folder.path / "versions" / "0001.json").write_text("{")
    folder.commit(model)
    assert [version.number for version in folder.versions()] == [1, 2, 3]
    assert "damaged" in folder.versions()[0].message
    assert folder.undo().number == 2
    with pytest.raises(UserError, match=r"0001\.json"):
        folder.undo()
    assert folder.load().class_names == ("0", "1", "2")


def test_concurrent_writes_are_rejected(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    with folder.lock():
        folder.load()
        with pytest.raises(UserError, match=r"is in use by process"):
            ModelFolder(tmp_path / "m").commit(model)


def test_changes_of_other_processes_are_not_lost(tmp_path: Path) -> None:
    x, y = blobs(3, 4)
    folder = ModelFolder(tmp_path / "m")
    assert folder.current() == 0
    folder.commit(IncrementalClassifier(None).learn(x[y == 0], y[y == 0]), based_on=0)
    mine, before = folder.load(), folder.current()
    folder.commit(folder.load().learn(x[y == 1], y[y == 1]), "theirs", based_on=1)
    with pytest.raises(RunFailed, match="changed by another process"):
        folder.commit(mine.learn(x[y == 2], y[y == 2]), based_on=before)
    assert folder.load().class_names == ("0", "1")
    assert folder.current() == 2


def test_other_folders_are_rejected(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="other files and no model"):
        model.save(tmp_path)
    with pytest.raises(UserError, match="contains no model"):
        ModelFolder(tmp_path / "none").load()
    model.save(tmp_path / "m")
    with pytest.raises(UserError, match="no version 9; existing versions: 1"):
        ModelFolder(tmp_path / "m").load(9)
    with pytest.raises(UserError, match="no earlier version"):
        ModelFolder(tmp_path / "m").undo()
    (tmp_path / "m" / "model.json").write_text('{"format": 99, "current": 1, "newest": 1}')
    with pytest.raises(UserError, match="newer version of cscct"):
        IncrementalClassifier.load(tmp_path / "m")


def test_shared_files_are_stored_once(tmp_path: Path) -> None:
    model = colours_model()
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    before = {path.name for path in (folder.path / "files").iterdir()}
    folder.commit(model.learn(pictures((60, 200, 60), 3, 2), "green"))
    added = {path.name for path in (folder.path / "files").iterdir()} - before
    # Exemplars; statistics, photos, predictor, evaluation, novelty; blocks of classes and history.
    assert len(added) == 3 + 7
    model.forget(["red", "blue"])
    folder.commit(model)
    folder.discard_history()
    left = {path.name for path in (folder.path / "files").iterdir()}
    assert len(left) == 3 + 7 + 1  # and the weights
    assert folder.load(backbone=Colours()).class_names == ("green",)
    folder.commit(folder.load(backbone=Colours()).forget("green"))
    assert folder.load(backbone=Colours()).learn(pictures((60, 200, 60), 3, 2), "green").class_names == ("green",)


def test_label_types_are_preserved(tmp_path: Path) -> None:
    x, y = blobs(3, 4)
    for number, labels in enumerate(([0, 1, 2], ["a/../b", "ü \n", "1"], [False, True])):
        chosen = y < len(labels)
        model = IncrementalClassifier(None).learn(x[chosen], [labels[i] for i in y[chosen]])
        model.save(tmp_path / str(number))
        again = IncrementalClassifier.load(tmp_path / str(number))
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.classes_.dtype == model.classes_.dtype


def test_numpy_parameters(tmp_path: Path) -> None:
    model = IncrementalClassifier(None, memory_per_class=np.int64(3), memory_mb=np.float32(2)).learn(*blobs(2, 4))
    model.save(tmp_path / "m")
    assert IncrementalClassifier.load(tmp_path / "m").memory_per_class == 3
    with pytest.raises(UserError, match="memory_mb must be a number"):
        model.set_params(memory_mb=float("inf")).learn(*blobs(2, 4))


def test_full_disk_does_not_change_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "open_regular", full)
    with pytest.raises(RunFailed, match=r"No space left.*did not change"):
        folder.commit(IncrementalClassifier(None).learn(*blobs(3, 4)))
    monkeypatch.undo()
    assert folder.load().class_names == ("0", "1")


def test_folders_of_other_programs_are_ignored(tmp_path: Path) -> None:
    """Some file servers create such folders everywhere."""
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder = ModelFolder(tmp_path / "m")
    folder.commit(model)
    for name in ("files", "versions"):
        (folder.path / name / "@thumbnails.tmp").mkdir()
    assert folder.commit(model) == 2
    assert (folder.path / "files" / "@thumbnails.tmp").is_dir()


def test_invalid_text_is_rejected(tmp_path: Path) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    with pytest.raises(UserError, match="not valid text"):
        model.save(tmp_path / "m", "caf\udce9")
    assert not is_model_folder(tmp_path / "m")
    with pytest.raises(UserError, match="not valid text"):
        colours_model().learn(pictures((60, 200, 60), 3, 2), "green\0")


def test_concurrent_restore_leaves_a_single_current_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IncrementalClassifier(None).learn(*blobs(2, 4))
    folder, concurrent = ModelFolder(tmp_path / "m"), ModelFolder(tmp_path / "m")
    for _ in range(2):
        folder.commit(model)
    real = RecordReader.version

    def version(reader: RecordReader, number: int, current: int) -> Any:
        if number == 1:
            concurrent.restore(1)
        return real(reader, number, current)

    monkeypatch.setattr(RecordReader, "version", version)
    assert [version.current for version in folder.versions()] == [False, True]


class TiedWeights(Colours):
    """A backbone with two layers that share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(48, 48, bias=False) for _ in range(2))
        self.second.weight = self.first.weight

    def forward(self, images: Tensor) -> Tensor:
        return self.second(self.first(super().forward(images)))


def test_custom_backbone_with_tied_weights_is_not_modified(tmp_path: Path) -> None:
    model = IncrementalClassifier(TiedWeights(), image_size=16).learn(pictures((200, 60, 60), 5), "red")
    model.learn(pictures((60, 60, 200), 5, 1), "blue").save(tmp_path / "m")
    backbone = TiedWeights()
    before = backbone.first.weight.detach().clone()
    again = IncrementalClassifier.load(tmp_path / "m", backbone=backbone)
    queries = pictures((90, 60, 90), 4)
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
    assert torch.equal(backbone.first.weight, before)
