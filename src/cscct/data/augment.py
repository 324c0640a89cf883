"""Image transforms on batches: crop, flip, brightness, normalisation and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Generator, Tensor

from ..specs import TransformSpec
from .augmentation_registry import MIXUP
from .augmentations import Draws, augment_pixels, mixup
from .base import CPU, ArrayImages, FileImages, to_device
from .image_files import read_reduced

NMEAugmentation = Literal["none", "hflip", "bgr"]
ALL = slice(None)
Part = slice | Tensor  # images of a batch
Mixing = Callable[[int, Generator], tuple[Tensor, float]]  # number of images -> partner of each, weight of the image


class View(Protocol):
    """Images of a split as network inputs.

    Images are float32 tensors of shape (k, c, h, w) in channels-last memory format.

    Attributes:
        prefetch: Number of batches to prepare in the background.
        mixing: Function that draws how the images of a batch are mixed with each other, or None.
    """

    prefetch: int
    mixing: Mixing | None

    def train(self, indices: Tensor, generator: Generator, part: Part = ALL, device: torch.device = CPU) -> Tensor:
        """Return augmented images.

        Args:
            indices: Indices of the images of a batch, shape (k,).
            generator: Source of the random numbers, which are drawn for the whole batch.
            part: Part of the batch to return. The result for an image does not depend on it.
            device: Device of the result. Pixels are copied to it as bytes and normalised there.
        """
        ...

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none", device: torch.device = CPU) -> Tensor:
        """Return images with the test transform.

        Args:
            indices: Indices of the images, shape (k,).
            variant: `none`, `hflip` (mirrored) or `bgr` (reversed channels).
            device: Device of the result.
        """
        ...


def make_view(images: ArrayImages | FileImages, spec: TransformSpec, workers: int = 2, device_mb: float = 0.0) -> View:
    """Return the view of images in memory or in files.

    Args:
        images: Images of a split.
        spec: Transform settings.
        workers: Threads that decode files.
        device_mb: Size up to which images in memory are copied to a GPU once and augmented there.

    Raises:
        ValueError: If images are files and `spec.size` is None.
    """
    if isinstance(images, ArrayImages):
        return ArrayView(images, spec, device_mb)
    return FileView(images, spec, workers)


def mixing_of(spec: TransformSpec) -> Mixing | None:
    """Return the function that draws how images are mixed, or None without mixup.

    Args:
        spec: Transform settings.
    """
    options = [entry[MIXUP] for entry in spec.augment if MIXUP in entry]
    return partial(mixup, **options[0]) if options else None


class PixelTransform:
    """Transform from uint8 pixels to network inputs.

    Args:
        spec: Transform settings.

    Attributes:
        factor: Factor of the normalisation, shape (channels or 1, 1, 1).
        shift: Shift of the normalisation, same shape. `pixels * factor + shift` equals `(pixels / 255 - mean) / std`.
        size: Side of the network inputs in pixels, or None for images of their original size.
    """

    def __init__(self, spec: TransformSpec):
        self.flip, self.brightness, self.size, self.augmentations = spec.flip, spec.brightness, spec.size, spec.augment
        self.factor = (1 / (255 * torch.tensor(spec.std))).view(-1, 1, 1)
        self.shift = (-torch.tensor(spec.mean) / torch.tensor(spec.std)).view(-1, 1, 1)
        self._constants = {CPU: (self.factor, self.shift)}

    def augment(
        self, pixels: Tensor, generator: Generator, count: int, part: Part, device: torch.device = CPU
    ) -> Tensor:
        """Flip images, change their brightness, apply further augmentations and normalise them.

        Args:
            pixels: Pixels of a part of a batch, shape (k, c, h, w), uint8.
            generator: Source of the random numbers, which are drawn for the whole batch.
            count: Number of images of the whole batch.
            part: Part of the batch that `pixels` contains.
            device: Device of the result.

        Returns:
            Network inputs, shape (k, c, h, w) or (k, c, size, size), float32.
        """
        if self.flip:
            flipped = to_device((torch.rand(count, generator=generator) < 0.5)[part], pixels.device)
            pixels = torch.where(flipped.view(-1, 1, 1, 1), pixels.flip(3), pixels)
        if self.brightness:
            factors = (1 + self.brightness * (2 * torch.rand(count, generator=generator) - 1))[part]
            # Products are truncated to whole values, as in image libraries with 8-bit images
            factors = to_device(factors, pixels.device).view(-1, 1, 1, 1)
            pixels = (pixels * factors).clamp_(max=255).floor_()
        if self.augmentations:
            pixels = augment_pixels(pixels.to(torch.uint8), self.augmentations, Draws(generator, count, part))
        return self.normalize(pixels, device)

    def normalize(self, pixels: Tensor, device: torch.device = CPU) -> Tensor:
        """Normalise and resize images.

        Args:
            pixels: Whole numbers from 0 to 255, shape (k, c, h, w), uint8 or float32. Float32 pixels may be changed in
                place.
            device: Device of the result. Pixels of the CPU are copied to it as bytes, a quarter of the size of the
                result.

        Returns:
            Network inputs, shape (k, c, h, w) or (k, c, size, size), float32.
        """
        if device not in self._constants:
            self._constants[device] = (self.factor.to(device), self.shift.to(device))
        factor, shift = self._constants[device]
        if pixels.device != device:
            pixels = to_device(pixels.to(torch.uint8), device)
        images = pixels.to(torch.float32, memory_format=torch.channels_last)
        return resize(images.mul_(factor).add_(shift), self.size)

    def normalize_variant(self, pixels: Tensor, variant: NMEAugmentation, device: torch.device = CPU) -> Tensor:
        """Normalise a variant of images.

        Args:
            pixels: Pixels, shape (k, c, h, w), uint8.
            variant: `none`, `hflip` (mirrored) or `bgr` (reversed channels).
            device: Device of the result.

        Returns:
            Network inputs, shape (k, c, h, w) or (k, c, size, size), float32.
        """
        if variant == "hflip":
            pixels = pixels.flip(3)
        elif variant == "bgr":  # the released code of LUCIR and CSCCT reverses the channels instead of the columns
            pixels = pixels.flip(1)
        return self.normalize(pixels, device)


def resize(images: Tensor, side: int | None) -> Tensor:
    """Resize images to squares.

    Args:
        images: Images, shape (k, c, h, w), float.
        side: Side in pixels, or None to keep the size.

    Returns:
        Images, shape (k, c, side, side). The input is returned if it has this size.
    """
    if side is None or images.shape[2:] == (side, side):
        return images
    smaller = max(images.shape[2:]) > side  # only downsampling needs antialiasing
    return F.interpolate(images, (side, side), mode="bilinear", antialias=smaller)


class ArrayView:
    """View of images in memory. Training images are random crops of zero-padded images.

    Args:
        images: Images of a split.
        spec: Transform settings.
        device_mb: Size up to which all images are copied to a GPU once, as bytes, and augmented there. Images with
            further augmentations (`augment`) are augmented on the CPU.
    """

    prefetch = 0  # a batch takes milliseconds, and a second thread would compete with training

    def __init__(self, images: ArrayImages, spec: TransformSpec, device_mb: float = 0.0):
        self.pixels, self.padding, self.transform = images.pixels, spec.padding, PixelTransform(spec)
        self.mixing = mixing_of(spec)
        self._fits_device = not spec.augment and self.pixels.nbytes <= 1e6 * device_mb
        self._on_device: dict[torch.device, Tensor] = {}

    def train(self, indices: Tensor, generator: Generator, part: Part = ALL, device: torch.device = CPU) -> Tensor:
        """Return augmented images, see `View.train`."""
        pixels, count = self._pixels(indices[part], device), len(indices)
        if self.padding:
            pad = self.padding
            height, width = pixels.shape[2:]
            padded = F.pad(pixels, (pad, pad, pad, pad))
            windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # without a copy: (k, c, 2p+1, 2p+1, h, w)
            shifts = torch.randint(0, 2 * pad + 1, (2, count), generator=generator)[:, part]
            top, left = to_device(shifts, pixels.device)
            pixels = windows[torch.arange(len(pixels), device=pixels.device), :, top, left]
        return self.transform.augment(pixels, generator, count, part, device)

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none", device: torch.device = CPU) -> Tensor:
        """Return images with the test transform, see `View.plain`."""
        return self.transform.normalize_variant(self._pixels(indices, device), variant, device)

    def _pixels(self, indices: Tensor, device: torch.device) -> Tensor:
        """Return images as bytes: on the device if all of them are kept there, else on the CPU."""
        if device == CPU or not self._fits_device:
            return self.pixels[indices]
        if device not in self._on_device:
            self._on_device[device] = to_device(self.pixels, device)
        return self._on_device[device][to_device(indices, device)]


class FileView:
    """View of image files. Training images are random resized crops, test images are centre crops.

    Files are decoded by a pool of threads. All random numbers are drawn before, so the result does not depend on the
    order in which threads finish.

    Args:
        images: Images of a split.
        spec: Transform settings.
        workers: Threads that decode files.

    Raises:
        ValueError: If `spec.size` is None.
    """

    prefetch = 2
    TRIES = 10  # random boxes per image

    def __init__(self, images: FileImages, spec: TransformSpec, workers: int):
        if spec.size is None:
            raise ValueError("image files need data.transform.size, the side of the network inputs in pixels.")
        self.images, self.reduced, self.transform = images, spec.reduced_decoding, PixelTransform(spec)
        self.size, self.short_side = spec.size, spec.short_side
        self.resampling = Image.Resampling[spec.interpolation.upper()]
        self.pool, self.mixing = ThreadPoolExecutor(workers), mixing_of(spec)

    def train(self, indices: Tensor, generator: Generator, part: Part = ALL, device: torch.device = CPU) -> Tensor:
        """Return augmented images, see `View.train`."""
        draws = torch.rand(len(indices), self.TRIES, 4, generator=generator, dtype=torch.float64)[part].numpy()
        crops = self.pool.map(self._random_crop, indices[part].tolist(), draws)
        pixels = torch.from_numpy(np.stack(list(crops))).permute(0, 3, 1, 2)
        return self.transform.augment(pixels, generator, len(indices), part, device)

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none", device: torch.device = CPU) -> Tensor:
        """Return images with the test transform, see `View.plain`."""
        crops = self.pool.map(self._centre_crop, indices.tolist())
        pixels = torch.from_numpy(np.stack(list(crops))).permute(0, 3, 1, 2)
        return self.transform.normalize_variant(pixels, variant, device)

    def _read(self, index: int, scale: Callable[[int, int], float]) -> tuple[Image.Image, tuple[int, int]]:
        """Return an image and its original size, see `read_reduced`. Resized copies are read at their full size."""
        if self.images.copies is not None:
            image = self.images.copies.read(index)
            return image, image.size
        return read_reduced(self.images.paths[index], scale if self.reduced else lambda *_: 1)

    def _random_crop(self, index: int, draws: np.ndarray) -> np.ndarray:
        def scale(width: int, height: int) -> float:
            left, top, right, bottom = random_resized_box(width, height, draws)
            return min(right - left, bottom - top) / self.size

        image, (width, height) = self._read(index, scale)
        box = random_resized_box(width, height, draws)
        if image.size != (width, height):
            across, down = image.width / width, image.height / height
            left, top, right, bottom = box
            box = (round(left * across), round(top * down), round(right * across), round(bottom * down))
        # Cropped before resizing: resize(box=...) would blend pixels from outside the box into its border
        return np.asarray(image.crop(box).resize((self.size, self.size), self.resampling))

    def _centre_crop(self, index: int) -> np.ndarray:
        image, original = self._read(index, lambda *size: min(size) / self.short_side)
        return centre_crop(image, original, self.size, self.short_side, self.resampling)


def centre_crop(
    image: Image.Image,
    original: tuple[int, int],
    size: int,
    short_side: int,
    resampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> np.ndarray:
    """Resize an image and return its central square.

    Args:
        image: RGB image, possibly decoded at a reduced scale.
        original: Width and height of the image at full scale.
        size: Side of the square in pixels.
        short_side: Length that the shorter side is resized to.
        resampling: Interpolation.

    Returns:
        Pixels, shape (size, size, 3), uint8.
    """
    width, height = original
    if width <= height:
        image = image.resize((short_side, int(short_side * height / width)), resampling)
    else:
        image = image.resize((int(short_side * width / height), short_side), resampling)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size)))


def random_resized_box(width: int, height: int, draws: np.ndarray) -> tuple[int, int, int, int]:
    """Return a random box with 8 to 100 % of the area and an aspect ratio of 3/4 to 4/3.

    Args:
        width: Width of the image.
        height: Height of the image.
        draws: Uniform random numbers, shape (tries, 4). The first row whose box fits into the image is used. If no box
            fits, the largest central box with an allowed aspect ratio is returned.

    Returns:
        Left, top, right and bottom of the box.
    """
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
