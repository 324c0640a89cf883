"""Models of runs: they predict like the run, and keep learning with its method."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cscct
from conftest import run_quietly
from cscct import IncrementalClassifier, UserError
from cscct.classifier.describe import describe
from cscct.classifier.folder import LearnOptions, forget_classes, learn_images
from cscct.classifier.run_model import load_run
from cscct.classifier.training import TrainingData, train
from cscct.config import resolve
from cscct.data import Dataset
from cscct.studies.datasets import load_dataset

SETTINGS = ("train.epochs=6", "protocol.base=4", "protocol.step=2", "data.order=natural")
FIRST = (*SETTINGS, "data.classes=8")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset(resolve("lucir", "digits"), None, lambda _: None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Copies of finished runs with eight classes; each method is trained once."""
    runs: dict[tuple[str, ...], Path] = {}

    def copy(folder: Path, method: str, *sets: str) -> Path:
        if (method, *sets) not in runs:
            runs[method, *sets] = tmp_path_factory.mktemp("finished") / "run"
            run_quietly(runs[method, *sets], method, *FIRST, *sets)
        return Path(shutil.copytree(runs[method, *sets], folder))

    return copy


def images_of(dataset: Dataset, *classes: int, test: bool = False) -> tuple[np.ndarray, list[str]]:
    split = dataset.test if test else dataset.train
    members = np.isin(split.labels, classes)
    return split.images.pixels.numpy()[members], [dataset.class_names[i] for i in split.labels[members]]  # type: ignore[union-attr]


def accuracy(model: IncrementalClassifier, images: tuple[np.ndarray, list[str]]) -> float:
    return float((model.predict(images[0]) == np.array(images[1])).mean())


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a folder", "dangling link"])
def test_unreadable_versions_are_not_ignored(kind: str, finished: Any, tmp_path: Path) -> None:
    """The model of the run is not loaded silently in place of its newest version."""
    folder = finished(tmp_path / "run", "lucir+cscct")
    pointer = folder / "model.json"
    if kind == "pipe":
        os.mkfifo(pointer)
    elif kind == "folder":
        pointer.mkdir()
    else:
        pointer.symlink_to(tmp_path if kind == "link to a folder" else tmp_path / "nothing")
    for command in (cscct.load, describe):
        with pytest.raises(UserError, match=r"model\.json"):
            command(folder)


@pytest.mark.parametrize("method", ["lucir+cscct", "icarl"])
def test_finished_run_keeps_learning(method: str, digits: Dataset, finished: Any, tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", method)
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    old, new = images_of(digits, *range(8), test=True), images_of(digits, 8, 9, test=True)
    before = cscct.load(folder)
    assert before.class_names == tuple("01234567")
    assert accuracy(before, old) > 0.6
    result = learn_images(folder, *images_of(digits, 8, 9))
    assert (result.version, result.classes, result.method) == (1, 10, method)
    model = cscct.load(folder)
    assert model.class_names == tuple("0123456789")
    assert accuracy(model, new) > 0.4  # far above chance
    assert accuracy(model, old) > 0.6 * accuracy(before, old)  # and the old classes stay known
    assert model.report_.after["8"][1] > 0  # measured on held-out images
    assert all(path.read_bytes() == content for path, content in files.items())  # the run is unchanged
    assert cscct.load(folder, version=0).class_names == tuple("01234567")
    weights = model.reader_.network.state_dict()
    assert any(not torch.equal(weights[k], v) for k, v in before.reader_.network.state_dict().items() if "stem" in k)


@pytest.mark.parametrize("method", ["lucir+cscct", "podnet", "der++", "icarl"])
def test_training_is_identical_to_another_task(method: str, digits: Dataset, finished: Any, tmp_path: Path) -> None:
    """Teacher, exemplars, stored targets, losses and random numbers are those of a run with one more task."""
    finished(tmp_path / "first", method, "train.epochs=2")
    run_quietly(tmp_path / "all", method, *SETTINGS, "train.epochs=2")
    model, whole = load_run(tmp_path / "first"), load_run(tmp_path / "all")
    assert model.training_ is not None
    new = {str(label): list(images_of(digits, label)[0][:, 0]) for label in (8, 9)}
    data = TrainingData(model.exemplars_, {}, new)
    result = train(model.reader_, model.training_.settings("cpu"), model.training_, data, lambda *_: None)
    expected = whole.reader_.network.state_dict()
    assert set(expected) == set(result.network.state_dict())
    for name, tensor in result.network.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0, msg=name)


def test_versions_of_a_run(digits: Dataset, finished: Any, tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", "lucir")
    assert [version["number"] for version in describe(folder)["versions"]] == [0]
    learn_images(folder, *images_of(digits, 8), message="eight")
    learn_images(folder, *images_of(digits, 9))
    description = describe(folder)
    assert [v["number"] for v in description["versions"] if v["current"]] == [2]
    assert len(description["classes"]) == 10
    assert description["status"] == "finished"
    store = cscct.classifier.store.ModelFolder(folder)
    assert store.undo().number == 1
    assert store.undo().number == 0
    assert len(cscct.load(folder).class_names) == 8
    with pytest.raises(UserError, match="no earlier version"):
        store.undo()
    assert store.restore(2).number == 2
    assert len(cscct.load(folder).class_names) == 10
    with pytest.raises(UserError, match="without --purge-history"):
        forget_classes(folder, ["8"], purge_history=True)
    forget_classes(folder, ["8"])
    model = cscct.load(folder)
    assert model.class_names == tuple("012345679")
    x, y = images_of(digits, 9, test=True)
    assert accuracy(model, (x, y)) > 0.3
    assert cscct.resume(folder).summary["last_accuracy"] > 0  # type: ignore[operator]


def test_without_stored_exemplars_new_classes_are_learned_by_their_means(digits: Dataset, tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", "lucir", *FIRST, "runtime.memory_mb=0")
    model = cscct.load(tmp_path / "run")
    assert model.exemplars_ == {}
    old = images_of(digits, *range(8), test=True)
    weights = {name: tensor.clone() for name, tensor in model.reader_.network.state_dict().items()}
    model.learn(*images_of(digits, 8))
    assert "stored no exemplars" in model.report_.notes[0]
    assert all(torch.equal(tensor, weights[k]) for k, tensor in model.reader_.network.state_dict().items())
    assert accuracy(model, images_of(digits, 8, test=True)) > 0.5
    assert accuracy(model, old) > 0.5
    model.save(tmp_path / "copy")
    again = cscct.load(tmp_path / "copy")
    np.testing.assert_array_equal(again.predict_proba(old[0]), model.predict_proba(old[0]))


def test_images_of_known_classes_only_do_not_train(digits: Dataset, finished: Any, tmp_path: Path) -> None:
    finished(tmp_path / "run", "icarl")
    model = cscct.load(tmp_path / "run")
    weights = {name: tensor.clone() for name, tensor in model.reader_.network.state_dict().items()}
    counts = {label: stats.count for label, stats in model.statistics_.items()}
    x, y = images_of(digits, 3)
    model.learn(x[:20], y[:20])
    assert "known classes" in model.report_.notes[0]
    assert all(torch.equal(tensor, weights[k]) for k, tensor in model.reader_.network.state_dict().items())
    added = model.report_.images["3"]
    assert 15 <= added <= 20  # the others are exemplars of the run, which the model knows
    assert model.statistics_["3"].count == counts["3"] + added
    assert model.class_names == tuple("01234567")


def test_a_training_free_run_continues_exactly(digits: Dataset, finished: Any, tmp_path: Path) -> None:
    finished(tmp_path / "first", "lda")
    run_quietly(tmp_path / "all", "lda", *SETTINGS)
    model = cscct.load(tmp_path / "first").learn(*images_of(digits, 8, 9))
    assert model.report_.training is None
    x = images_of(digits, *range(10), test=True)[0]
    np.testing.assert_allclose(model.predict_proba(x), cscct.load(tmp_path / "all").predict_proba(x), atol=1e-5)


def test_another_method_continues_a_run(digits: Dataset, finished: Any, tmp_path: Path) -> None:
    finished(tmp_path / "run", "lucir")
    result = learn_images(tmp_path / "run", *images_of(digits, 8), options=LearnOptions(method="ncm"))
    assert (result.method, result.report.training) == ("ncm", None)
    assert accuracy(cscct.load(tmp_path / "run"), images_of(digits, 8, test=True)) > 0.5


def test_damaged_exemplars_are_reported(finished: Any, tmp_path: Path) -> None:
    finished(tmp_path / "run", "lucir")
    path = tmp_path / "run" / "exemplars.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"exemplars\.safetensors is damaged"):
        cscct.load(tmp_path / "run")
    path.unlink()
    assert len(cscct.load(tmp_path / "run").class_names) == 8
