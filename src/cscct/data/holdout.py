"""Validation images: a fraction of the training images of each class that is held out from training."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from ..errors import UserError

Members = tuple[tuple[int, ...], ...]


def hold_out(members: Members, class_names: Sequence[str], fraction: float) -> tuple[Members, Members]:
    """Divide the training images of each class into training and validation images.

    The division depends only on the name of a class and the number of its images, so it is the same for all methods,
    seeds and class orders. The images of a smaller fraction are a subset of those of a larger one.

    Args:
        members: Indices of the images of each class.
        class_names: Class names.
        fraction: Fraction of the images of each class that are validation images, rounded to the nearest number.

    Returns:
        Indices of the training images and of the validation images of each class, in the order of `members`.

    Raises:
        UserError: If a class would have no training or no validation images.
    """
    train, validation = [], []
    for name, images in zip(class_names, members, strict=True):
        count = validation_count(name, len(images), fraction)
        seed = int.from_bytes(hashlib.sha256(f"validation of {name}".encode()).digest()[:4], "big")
        chosen = set(np.random.RandomState(seed).permutation(len(images))[:count].tolist())
        train.append(tuple(index for place, index in enumerate(images) if place not in chosen))
        validation.append(tuple(index for place, index in enumerate(images) if place in chosen))
    return tuple(train), tuple(validation)


def validation_count(class_name: str, images: int, fraction: float) -> int:
    """Return the number of validation images of a class.

    Args:
        class_name: Name of the class, for the message.
        images: Number of its images, training and validation images together.
        fraction: Fraction of validation images.

    Raises:
        UserError: If the class would have no training or no validation images.
    """
    count = math.floor(fraction * images + 0.5)
    if 0 < count < images:
        return count
    missing = "training" if count else "validation"
    if images < 2:
        advice = "a class needs at least two training images: add some, or unset data.validation"
    else:
        advice = f"use a fraction {'of at most' if count else 'of at least'} {_nearest(images, bool(count)):g}"
    raise UserError(
        f"data.validation is {fraction:g}, which leaves class {class_name} without {missing} images (it has {images} "
        f"images in all): {advice}."
    )


def _nearest(images: int, too_large: bool) -> float:
    """The largest or smallest fraction with two decimals, or more if needed, that is valid for a class."""
    limit = (images - 1) / images if too_large else 1 / images
    digits = max(2, len(str(images)))
    scale = 10**digits
    return (math.floor if too_large else math.ceil)(limit * scale) / scale
