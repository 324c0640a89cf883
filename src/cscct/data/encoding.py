"""Images as files for storage: encoded, and within a budget."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from PIL import Image

from .inputs import ImageFormat, Item, ItemReader, open_item

JPEG_QUALITY = 85
Key = TypeVar("Key")


def encode(item: Item, format: ImageFormat) -> bytes:
    """Encode an image for storage.

    Images that are learned as stored in memory become PNG, without loss; others JPEG whose shorter side is at most what
    the network's crops are taken from. The metadata of the original is dropped.
    """
    if isinstance(item, bytes):
        return item
    file = io.BytesIO()
    if format.size is not None or format.transform.size is None:
        pixels = ItemReader([item], format).pixels([0])[0]
        if isinstance(pixels, Exception):
            raise pixels
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
        return file.getvalue()
    short_side = format.transform.short_side
    image, (width, height) = open_item(item, lambda *size: min(size) / short_side)
    scale = short_side / min(width, height)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        image = image.resize(size, Image.Resampling.BILINEAR)
    Image.fromarray(np.asarray(image)).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def media_type(image: bytes) -> str:
    """Return the media type of an encoded image."""
    return "image/png" if image.startswith(b"\x89PNG") else "image/jpeg"


def within_budget(exemplars: Mapping[Key, Sequence[bytes]], megabytes: float) -> dict[Key, list[bytes]]:
    """Return as many exemplars of each class as fit if all classes may have equally many. 1 MB is a million bytes."""
    quota = max((len(images) for images in exemplars.values()), default=0)
    while quota and sum(len(image) for images in exemplars.values() for image in images[:quota]) > megabytes * 1e6:
        quota -= 1
    return {label: list(images[:quota]) for label, images in exemplars.items()}
