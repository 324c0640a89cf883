"""The images that a model keeps of each class: chosen by herding, encoded as JPEG, within a budget.

Every fifth image of a class is held back from fine-tuning for good, and every fifth exemplar is one of these, so that
shrinking the lists keeps the share: position 4, 9, 14, ... in the order of images, and in the order of ranks.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..memory import herd
from .features import FeatureExtractor
from .images import Item, open_item
from .labels import Label

HELD_BACK_EVERY = 5
QUALITY = 85


def held_back(count: int, start: int = 0) -> Tensor:
    """(count,) whether each image is held back. start: the number of images of the class before these."""
    return torch.arange(start, start + count) % HELD_BACK_EVERY == HELD_BACK_EVERY - 1


def choose(features: Tensor, flags: Tensor, count: int) -> list[int]:
    """Indices of up to `count` images in rank order. flags: which are held back."""
    ranked = []
    for held in (False, True):
        members = torch.nonzero(flags == held).flatten().tolist()
        order = herd(features[flags == held], count, "icarl")
        ranked.append([members[i] for i in order])
    trained, kept_out = ranked
    found: list[int] = []
    while len(found) < count and (trained or kept_out):
        held = bool(held_back(1, len(found)))
        queue = kept_out if held else trained
        if not queue:
            break
        found.append(queue.pop(0))
    return found


def chosen_exemplars(
    extractor: FeatureExtractor, kept: list[bytes], count: int, new: tuple[Tensor, list[Item]], limit: int
) -> list[bytes]:
    """Exemplars of a class from those that are kept so far and new images of it.

    count: images of the class that were learned before. new: features of the new images, and these.
    """
    features, items = new
    flags = torch.cat([held_back(len(kept)), held_back(len(items), count)])
    if kept:
        features = torch.cat([extractor.extract(kept).features, features])
    candidates: list[Item] = [*kept, *items]
    ranked = [candidates[i] for i in choose(features, flags, limit)]
    return [one if isinstance(one, bytes) else encode(one, extractor.transform.short_side) for one in ranked]


def encode(item: Item, short_side: int) -> bytes:
    """As a JPEG whose shorter side is at most `short_side` pixels."""
    image, (width, height) = open_item(item, lambda *size: min(size) / short_side)
    scale = short_side / min(width, height)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        image = image.resize(size, Image.Resampling.BILINEAR)
    file = io.BytesIO()
    Image.fromarray(np.asarray(image)).save(file, "JPEG", quality=QUALITY)  # without the original's metadata
    return file.getvalue()


def within_budget(exemplars: Mapping[Label, Sequence[bytes]], megabytes: float) -> dict[Label, list[bytes]]:
    """As many of each class as fit when all classes may have equally many. 1 MB is a million bytes."""
    quota = max((len(images) for images in exemplars.values()), default=0)
    while quota and sum(len(image) for images in exemplars.values() for image in images[:quota]) > megabytes * 1e6:
        quota -= 1
    return {label: list(images[:quota]) for label, images in exemplars.items()}
