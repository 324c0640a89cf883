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


def test_unknown_name() -> None:
    with pytest.raises(UserError, match=r"Unknown dataset .cifar1000. .did you mean 'cifar100'") as caught:
        sources.load("cifar1000", REQUEST)
    assert "cifar10, cifar100, cub200, digits, folder, imagenet-subset, tiny-imagenet" in str(caught.value)
    with pytest.raises(UserError, match=r"Unknown dataset 'zzz'\. The datasets are"):
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
