"""Validation of loaded datasets: one label per image, and images of every class in both splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError
from .registry import listing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .base import Dataset, Split


def check_dataset(dataset: Dataset) -> None:
    """Check that a dataset is valid.

    Args:
        dataset: Dataset.

    Raises:
        UserError: If images and labels differ in number, a label is out of range, or a class has no images in a split.
    """
    train = _images_per_class(dataset, dataset.train, "training")
    test = _images_per_class(dataset, dataset.test, "test")
    for counts, split_name in ((train, "training"), (test, "test")):
        empty = [name for name, count in zip(dataset.class_names, counts, strict=True) if not count]
        if empty:
            subject = f"class {empty[0]} has" if len(empty) == 1 else f"classes {listing(empty)} have"
            raise UserError(
                f"In dataset {dataset.name!r}, {subject} no {split_name} images: "
                "every class needs at least one training and one test image. Add images, or remove the class."
            )


def _images_per_class(dataset: Dataset, split: Split, split_name: str) -> NDArray[np.int64]:
    import numpy as np

    classes = len(dataset.class_names)
    if len(split.images) != len(split.labels):
        raise UserError(
            f"Dataset {dataset.name!r} has {len(split.images)} {split_name} images but {len(split.labels)} labels: "
            "its loader must return one label per image."
        )
    outside = split.labels[(split.labels < 0) | (split.labels >= classes)]
    if len(outside):
        raise UserError(
            f"Dataset {dataset.name!r} has a {split_name} image with label {outside[0]}, but {classes} classes: "
            f"labels must be from 0 to {classes - 1}."
        )
    return np.bincount(split.labels, minlength=classes).astype(np.int64)
