"""Datasets and their parts."""

from pathlib import Path

import numpy as np

import cscct
from cscct.data.base import Dataset, FileImages, Split


def test_repr_of_a_dataset_in_memory_is_one_line() -> None:
    x, y = np.zeros((6, 3, 8, 10), dtype=np.uint8), [0, 1, 2, 0, 1, 2]
    dataset = cscct.Dataset.from_arrays(x, y, x[:3], y[:3])
    assert repr(dataset) == "Dataset('arrays', 3 classes, 6 train and 3 test images, 3x8x10)"
    assert repr(dataset.train) == "Split(6 images of 3 classes, 3x8x10)"
    assert repr(dataset.test.images) == "ArrayImages(3 images, 3x8x10)"


def test_repr_of_a_dataset_of_files_is_one_line() -> None:
    images = FileImages(tuple(Path(f"{i}.jpg") for i in range(1000)))
    split = Split(images, np.arange(1000) % 4)
    dataset = Dataset("folder", ("a", "b", "c", "d"), split, split, channels=3)
    assert repr(images) == "FileImages(1000 images)"
    assert repr(split) == "Split(1000 images of 4 classes, on disk)"
    assert repr(dataset) == "Dataset('folder', 4 classes, 1000 train and 1000 test images, on disk)"
