"""Selection of the images that a model stores for each class.

Every fifth image of a class is held out from training for good, and so is every fifth exemplar, so that shortening the
lists keeps the share: positions 4, 9, 14, ... in the order of images and in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..features import herd

HELD_OUT_EVERY = 5
T = TypeVar("T")


def held_out(count: int, start: int = 0) -> Tensor:
    """Return which images are held out from training.

    Args:
        count: Number of images.
        start: Number of images of the class before these.

    Returns:
        (count,) bool.
    """
    return torch.arange(start, start + count) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1


def split_held_out(images: Sequence[T]) -> tuple[list[T], list[T]]:
    """Split a list into the images that may be trained on and those held out."""
    flags = held_out(len(images)).tolist()
    trained = [image for image, held in zip(images, flags, strict=True) if not held]
    return trained, [image for image, held in zip(images, flags, strict=True) if held]


def join_held_out(trained: Sequence[T], held: Sequence[T]) -> list[T]:
    """Join two lists such that `split_held_out` separates them again. The result ends when the list whose turn it is
    has no element left."""
    joined: list[T] = []
    queues = {False: list(trained), True: list(held)}
    while queues[bool(held_out(1, len(joined)))]:
        joined.append(queues[bool(held_out(1, len(joined)))].pop(0))
    return joined


def choose_exemplars(features: Tensor, flags: Tensor, count: int) -> list[int]:
    """Return indices of up to `count` images in rank order.

    Args:
        features: (n, d), of one class.
        flags: (n,) bool, which images are held out from training.
        count: Largest number of exemplars.
    """
    ranked = []
    for held in (False, True):
        members = torch.nonzero(flags == held).flatten().tolist()
        ranked.append([members[index] for index in herd(features[flags == held], count, "icarl")])
    return join_held_out(*ranked)[:count]
