"""Datasets of Hugging Face."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cscct
from cscct.errors import UserError

datasets = pytest.importorskip("datasets", reason="pip install 'cscct[hf]'")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)


def splits(*names: str) -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "owl"])})
    rows = {"image": [Image.fromarray(pixels) for pixels in PIXELS], "label": [0, 1, 2, 2, 1, 0]}
    return datasets.DatasetDict({name: datasets.Dataset.from_dict(rows, features=features) for name in names})


@pytest.mark.parametrize("test", ["test", "validation"])
def test_memory_and_disk(test: str, tmp_path: Path) -> None:
    source = splits("train", test)
    source.save_to_disk(tmp_path / "stored")
    dataset = cscct.Dataset.from_huggingface(source)
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.labels.tolist() == [0, 1, 2, 2, 1, 0]
    np.testing.assert_array_equal(dataset.test.images.pixels.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert cscct.Dataset.from_huggingface(tmp_path / "stored").fingerprint() == dataset.fingerprint()


def test_user_errors(tmp_path: Path) -> None:
    for source, message in [
        (tmp_path / "missing", "no folder"),
        (tmp_path, "cannot be read"),
        (splits("train"), "no split 'test'"),
        (splits("test"), "'train' and 'test'"),
        (splits("train")["train"], "a single dataset"),
    ]:
        with pytest.raises(UserError, match=message):
            cscct.Dataset.from_huggingface(source)
    with pytest.raises(UserError, match="image_key"):
        cscct.Dataset.from_huggingface(splits("train", "test"), image_key="photo")
