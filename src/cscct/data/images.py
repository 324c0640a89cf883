"""Images as users hold them - arrays, PIL images, paths - as inputs of a trained network."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import UserError
from ..specs import TransformSpec
from .augment import View, centre_crop, make_view
from .base import ArrayImages, FileImages
from .image_files import read_image


class ImageReader:
    """Brings images into the form in which the test images of a run were.

    image_size: height and width of images that were in memory, to which others are resized.
    """

    def __init__(self, transform: TransformSpec, channels: int, image_size: tuple[int, int] | None):
        self.transform, self.channels, self.image_size = transform, channels, image_size

    def view(self, images: Any) -> tuple[View, int]:
        """The view of the images that networks read, and how many there are."""
        held = self._held(images)
        return make_view(held, self.transform), len(held)

    def _held(self, images: Any) -> ArrayImages | FileImages:
        if isinstance(images, np.ndarray | Tensor):
            return self._from_array(torch.as_tensor(images).cpu())
        if isinstance(images, str | PathLike | Image.Image):
            images = [images]
        if not isinstance(images, Sequence):
            images = list(images)
        files = bool(images) and all(isinstance(one, str | PathLike) for one in images)
        if files and self.transform.size is not None and self.image_size is None:
            return FileImages(tuple(_existing(Path(one)) for one in images))
        rows = [self._pixels(one) for one in images]
        return ArrayImages(torch.stack(rows) if rows else torch.empty(0, self.channels, 1, 1, dtype=torch.uint8))

    def _from_array(self, pixels: Tensor) -> ArrayImages:
        if pixels.ndim == 3 and self.channels == 1:
            pixels = pixels[:, None]
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != self.channels:
            raise UserError(
                f"Images must be a uint8 array (images, {self.channels}, height, width), not "
                f"{str(pixels.dtype).removeprefix('torch.')} {tuple(pixels.shape)}; a single one: image[None]."
            )
        wanted = None if self.transform.size else tuple(pixels.shape[2:])
        as_learned = (self.image_size or wanted) == tuple(pixels.shape[2:])
        if as_learned or not len(pixels):
            return ArrayImages(pixels)
        return ArrayImages(torch.stack([self._pixels(one) for one in pixels]))

    def _pixels(self, one: Any) -> Tensor:
        """One image, (channels, height, width) uint8."""
        if isinstance(one, str | PathLike):
            image = read_image(_existing(Path(one)))
        elif isinstance(one, Image.Image):
            image = one
        else:
            array = np.asarray(one)
            if array.dtype != np.uint8 or array.ndim != 3 or array.shape[0] not in (1, 3):
                raise UserError(f"An image must be a uint8 array (channels, height, width), not {array.shape}.")
            image = Image.fromarray(array[0] if array.shape[0] == 1 else array.transpose(1, 2, 0))
        image = image.convert("L" if self.channels == 1 else "RGB")
        if self.image_size is not None:
            same = image.size == self.image_size[::-1]
            return _tensor(image if same else image.resize(self.image_size[::-1], Image.Resampling.BILINEAR))
        if self.transform.size is not None:
            return _tensor(centre_crop(image, image.size, self.transform.size, self.transform.short_side))
        return _tensor(image)


def _tensor(image: Image.Image | np.ndarray) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"There is no image {path}.")
    return path
