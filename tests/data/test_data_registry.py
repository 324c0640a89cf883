import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from cscct.data import registry as sources
from cscct.data.base import ArrayImages, Dataset, Split
from cscct.errors import UserError

REQUEST = sources.LoadRequest(None, skip_bad_images=False, test_fraction=0.2, seed=1, warn=lambda text: None)


def test_the_datasets() -> None:
    assert set(sources.DATASETS) == {"digits", "cifar100", "imagenet-subset", "folder", "arrays"}
    assert {name: kind.num_classes for name, kind in sources.DATASETS.items()} == {
        "digits": 10,
        "cifar100": 100,
        "imagenet-subset": 100,
        "folder": None,
        "arrays": None,
    }
    assert [name for name, kind in sources.DATASETS.items() if kind.fetchable] == ["cifar100"]
    assert all(kind.name == name and kind.summary for name, kind in sources.DATASETS.items())


def test_the_registry_itself_imports_nothing_heavy() -> None:
    """This module alone: an empty package stands in for cscct.data, whose own imports are not judged here."""
    code = (
        "import importlib.util, sys, types\n"
        "package = types.ModuleType('cscct.data')\n"
        "package.__path__ = importlib.util.find_spec('cscct').submodule_search_locations[0] + '/data',\n"
        "sys.modules['cscct.data'] = package\n"
        "import cscct.data.registry\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "cscct.data.registry" in loaded
    assert not {"torch", "numpy", "sklearn", "PIL", "pooch"} & set(loaded)


def test_unknown_name_tells_the_nearest_and_all() -> None:
    with pytest.raises(UserError, match="no dataset called 'cifar10'; did you mean 'cifar100'") as caught:
        sources.load("cifar10", REQUEST)
    assert "cifar100, digits, folder, imagenet-subset" in str(caught.value)
    with pytest.raises(UserError, match=r"no dataset called 'zzz'\. The datasets are"):
        sources.load("zzz", REQUEST)


def test_digits_pixels_and_labels() -> None:
    dataset = sources.load("digits", REQUEST)
    bunch = load_digits()
    assert dataset.class_names == tuple("0123456789")
    assert dataset.channels == 1
    train, test = dataset.train, dataset.test
    assert isinstance(train.images, ArrayImages)
    assert isinstance(test.images, ArrayImages)
    assert train.images.pixels.dtype == torch.uint8
    assert train.images.pixels.shape == (1442, 1, 8, 8)
    assert test.images.pixels.shape == (355, 1, 8, 8)
    seen = [0] * 10
    rank_in = {True: 0, False: 0}
    for image, digit in zip(bunch.images, bunch.target, strict=True):
        seen[digit] += 1
        is_test = seen[digit] % 5 == 0
        split = test if is_test else train
        assert isinstance(split.images, ArrayImages)
        assert split.labels[rank_in[is_test]] == digit
        got = split.images.pixels[rank_in[is_test], 0].tolist()
        assert got == [[round(value * 255 / 16) for value in row] for row in image]
        rank_in[is_test] += 1


def test_digits_split_does_not_depend_on_the_seed() -> None:
    from dataclasses import replace

    one, two = (
        sources.load("digits", REQUEST),
        sources.load("digits", replace(REQUEST, seed=99, test_fraction=0.5)),
    )
    np.testing.assert_array_equal(one.test.labels, two.test.labels)
    assert isinstance(one.test.images, ArrayImages)
    assert isinstance(two.test.images, ArrayImages)
    assert torch.equal(one.test.images.pixels, two.test.images.pixels)


def made(train: list[int], test: list[int], images: int | None = None) -> Dataset:
    def split(labels: list[int]) -> Split:
        count = len(labels) if images is None else images
        return Split(ArrayImages(torch.zeros(count, 1, 2, 2, dtype=torch.uint8)), np.array(labels, dtype=np.int64))

    return Dataset("mine", ("a", "b", "c"), split(train), split(test), channels=1)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (made([0, 2], [0, 1, 2]), "class b has no training images"),
        (made([0], [0]), "classes b, c have no training images"),
        (made([0, 1, 2], [0, 1]), "class c has no test images"),
        (made([0, 1, 2, 3], [0, 1, 2]), "training image with label 3, but 3 classes"),
        (made([0, 1, 2], [0, 1, 2, -1]), "test image with label -1"),
        (made([0, 1, 2], [0, 1, 2], images=4), "4 training images but 3 labels"),
    ],
)
def test_every_loaded_dataset_is_checked(monkeypatch: pytest.MonkeyPatch, dataset: Dataset, message: str) -> None:
    monkeypatch.setattr(sources, "DATASETS", {})
    sources.register(sources.DatasetKind("mine", "", 3, lambda request: dataset, fetchable=False))
    with pytest.raises(UserError, match=message):
        sources.load("mine", REQUEST)


def test_register_and_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DATASETS", dict(sources.DATASETS))
    dataset = made([0, 1, 2], [2, 1, 0])
    kind = sources.DatasetKind("mine", "", 3, lambda request: dataset, fetchable=False)
    sources.register(kind)
    assert sources.load("mine", REQUEST) is dataset
    with pytest.raises(UserError, match="already a dataset called 'mine'"):
        sources.register(kind)


def test_default_data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake: Any = SimpleNamespace(os_cache=lambda project: tmp_path / "cache" / project)
    monkeypatch.setitem(sys.modules, "pooch", fake)
    for unset in (None, ""):
        monkeypatch.setenv("CSCCT_DATA", unset) if unset is not None else monkeypatch.delenv("CSCCT_DATA", False)
        assert sources.default_data_dir() == tmp_path / "cache" / "cscct"
    monkeypatch.setenv("CSCCT_DATA", str(tmp_path / "mine"))
    assert sources.default_data_dir() == tmp_path / "mine"
    assert sources.locate(None, "x") == [tmp_path / "mine", tmp_path / "mine" / "x"]
    assert sources.locate(Path("there"), "x") == [Path("there"), Path("there") / "x"]
    assert sources.locate(Path("~")) == [Path.home()]


def test_listing() -> None:
    assert sources.listing(["a", "b"]) == "a, b"
    assert sources.listing(list("abcdefg")) == "a, b, c, d, e and 2 more"
