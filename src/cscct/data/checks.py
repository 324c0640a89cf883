"""What every dataset must be, whoever loads it: one label an image, and images of every class in both parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError
from .registry import listing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .base import Dataset, Split


def check_dataset(dataset: Dataset) -> None:
    train = _images_per_class(dataset, dataset.train, "training")
    test = _images_per_class(dataset, dataset.test, "test")
    for counts, what in ((train, "training"), (test, "test")):
        empty = [name for name, count in zip(dataset.class_names, counts, strict=True) if not count]
        if empty:
            who = f"class {empty[0]} has" if len(empty) == 1 else f"classes {listing(empty)} have"
            raise UserError(
                f"In dataset {dataset.name!r}, {who} no {what} images: "
                "every class needs at least one training and one test image. Add some, or remove the class."
            )


def _images_per_class(dataset: Dataset, split: Split, what: str) -> NDArray[np.int64]:
    import numpy as np

    classes = len(dataset.class_names)
    if len(split.images) != len(split.labels):
        raise UserError(
            f"Dataset {dataset.name!r} has {len(split.images)} {what} images but {len(split.labels)} labels: "
            "its loader must give one label to each image."
        )
    outside = split.labels[(split.labels < 0) | (split.labels >= classes)]
    if len(outside):
        raise UserError(
            f"Dataset {dataset.name!r} has a {what} image with label {outside[0]}, but {classes} classes: "
            f"labels go from 0 to {classes - 1}."
        )
    return np.bincount(split.labels, minlength=classes).astype(np.int64)
