"""Transforms, a batch at a time on uint8 tensors: crop, flip, brightness, normalise, resize."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Generator, Tensor

from ..specs import TransformSpec
from .base import ArrayImages, FileImages
from .image_files import read_reduced

NMEAugmentation = Literal["none", "hflip", "bgr"]
ALL = slice(None)


class View(Protocol):
    """Images of a split as network inputs: float, (k, channels, height, width), channels last in memory."""

    prefetch: int  # batches worth preparing ahead, in the background

    def train(self, indices: Tensor, generator: Generator, part: slice = ALL) -> Tensor:
        """Augmented. part: only these of them; what one gets does not depend on it."""
        ...

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none") -> Tensor: ...


def make_view(images: ArrayImages | FileImages, spec: TransformSpec, workers: int = 2) -> View:
    if isinstance(images, ArrayImages):
        return ArrayView(images, spec)
    return FileView(images, spec, workers)


class _Finish:
    """The steps that both kinds of images share, from uint8 to normalised float."""

    def __init__(self, spec: TransformSpec):
        self.flip, self.brightness, self.size = spec.flip, spec.brightness, spec.size
        # (x / 255 − mean) / std as one multiplication and one addition
        self.factor = (1 / (255 * torch.tensor(spec.std))).view(-1, 1, 1)
        self.shift = (-torch.tensor(spec.mean) / torch.tensor(spec.std)).view(-1, 1, 1)

    def augment(self, pixels: Tensor, generator: Generator, k: int, part: slice) -> Tensor:
        """pixels: those of a part of k images; the numbers are drawn for all of them."""
        if self.flip:
            flipped = (torch.rand(k, generator=generator) < 0.5)[part]
            pixels[flipped] = pixels[flipped].flip(3)
        if self.brightness:
            factors = (1 + self.brightness * (2 * torch.rand(k, generator=generator) - 1))[part]
            # An 8-bit image times a number is cut to whole values, as an image library does it.
            pixels = (pixels * factors.view(-1, 1, 1, 1)).clamp_(max=255).floor_()
        return self.normalise(pixels)

    def normalise(self, pixels: Tensor) -> Tensor:
        values = pixels.to(torch.float32, memory_format=torch.channels_last)
        return resize(values.mul_(self.factor).add_(self.shift), self.size)

    def vary(self, pixels: Tensor, variant: NMEAugmentation) -> Tensor:
        if variant == "hflip":
            pixels = pixels.flip(3)
        elif variant == "bgr":  # the channels reversed: what LUCIR's and CSCCT's code does where a flip was meant
            pixels = pixels.flip(1)
        return self.normalise(pixels)


def resize(images: Tensor, side: int | None) -> Tensor:
    """Float images as squares of `side` pixels; as they are if they have that size, or if side is None."""
    if side is None or images.shape[2:] == (side, side):
        return images
    smaller = max(images.shape[2:]) > side  # enlarging needs no smoothing
    return F.interpolate(images, (side, side), mode="bilinear", antialias=smaller)


class ArrayView:
    prefetch = 0  # a batch takes a few milliseconds; a second thread would only take the cores from training

    def __init__(self, images: ArrayImages, spec: TransformSpec):
        self.pixels, self.padding, self.finish = images.pixels, spec.padding, _Finish(spec)

    def train(self, indices: Tensor, generator: Generator, part: slice = ALL) -> Tensor:
        pixels, k = self.pixels[indices[part]], len(indices)
        if self.padding:
            pad = self.padding
            side = pixels.shape[2:]
            padded = F.pad(pixels, (pad, pad, pad, pad))
            windows = padded.unfold(2, side[0], 1).unfold(3, side[1], 1)  # a view: (k, c, 2p+1, 2p+1, h, w)
            top, left = torch.randint(0, 2 * pad + 1, (2, k), generator=generator)[:, part]
            pixels = windows[torch.arange(len(pixels)), :, top, left]
        return self.finish.augment(pixels, generator, k, part)

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none") -> Tensor:
        return self.finish.vary(self.pixels[indices], variant)


class FileView:
    """Files are decoded, cropped and resized by a pool of threads (the image library releases the interpreter lock);
    every random number is drawn before, so the result does not depend on which thread comes first."""

    prefetch = 2
    TRIES = 10

    def __init__(self, images: FileImages, spec: TransformSpec, workers: int):
        if spec.size is None:
            raise ValueError("image files need data.transform.size, the side in pixels of what the network sees.")
        self.images, self.reduced, self.finish = images, spec.reduced_decoding, _Finish(spec)
        self.size, self.short_side = spec.size, spec.short_side
        self.pool = ThreadPoolExecutor(workers)

    def train(self, indices: Tensor, generator: Generator, part: slice = ALL) -> Tensor:
        draws = torch.rand(len(indices), self.TRIES, 4, generator=generator, dtype=torch.float64).numpy()
        crops = self.pool.map(self._random_crop, indices[part].tolist(), draws[part])
        pixels = torch.from_numpy(np.stack(list(crops))).permute(0, 3, 1, 2)
        return self.finish.augment(pixels, generator, len(indices), part)

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none") -> Tensor:
        crops = self.pool.map(self._centre_crop, indices.tolist())
        return self.finish.vary(torch.from_numpy(np.stack(list(crops))).permute(0, 3, 1, 2), variant)

    def _read(self, index: int, times: Callable[[int, int], float]) -> tuple[Image.Image, tuple[int, int]]:
        """As read_reduced; copies are small as they are."""
        if self.images.copies is not None:
            image = self.images.copies.read(index)
            return image, image.size
        return read_reduced(self.images.paths[index], times if self.reduced else lambda *_: 1)

    def _random_crop(self, index: int, draws: np.ndarray) -> np.ndarray:
        def times(width: int, height: int) -> float:
            left, top, right, bottom = random_resized_box(width, height, draws)
            return min(right - left, bottom - top) / self.size

        image, (width, height) = self._read(index, times)
        box = random_resized_box(width, height, draws)
        if image.size != (width, height):
            across, down = image.width / width, image.height / height
            left, top, right, bottom = box
            box = (round(left * across), round(top * down), round(right * across), round(bottom * down))
        # Cut out, then resized: resize(box=...) would let pixels from outside into the border.
        return np.asarray(image.crop(box).resize((self.size, self.size), Image.Resampling.BILINEAR))

    def _centre_crop(self, index: int) -> np.ndarray:
        image, original = self._read(index, lambda *size: min(size) / self.short_side)
        return centre_crop(image, original, self.size, self.short_side)


def centre_crop(image: Image.Image, original: tuple[int, int], size: int, short_side: int) -> np.ndarray:
    """Resized to `short_side`, then the central square of `size` pixels. original: width and height of the image
    before it was decoded at a reduced scale."""
    width, height = original
    if width <= height:
        image = image.resize((short_side, int(short_side * height / width)), Image.Resampling.BILINEAR)
    else:
        image = image.resize((int(short_side * width / height), short_side), Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size)))


def random_resized_box(width: int, height: int, draws: np.ndarray) -> tuple[int, int, int, int]:
    """A box of 8 to 100 % of the area and a ratio of 3/4 to 4/3, from rows of four uniform numbers; the first row
    that fits decides, and if none does, the largest central box of an allowed ratio."""
    for area_draw, ratio_draw, left_draw, top_draw in draws:
        area = width * height * (0.08 + 0.92 * area_draw)
        ratio = math.exp(math.log(3 / 4) + math.log(16 / 9) * ratio_draw)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(left_draw * (width - w + 1)), int(top_draw * (height - h + 1))
            return left, top, left + w, top + h
    ratio = min(max(width / height, 3 / 4), 4 / 3)
    w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
