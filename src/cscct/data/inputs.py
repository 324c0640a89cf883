"""Images of users as inputs of networks: arrays, tensors, PIL images, files, folders and torch datasets."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ..errors import UnreadableImage, UserError
from ..specs import TransformSpec
from .augment import ArrayView, FileView, PixelTransform, View
from .base import ArrayImages, FileImages
from .image_files import read_reduced, to_rgb
from .scanning import InputProblem as InputProblem
from .scanning import display_path as display_path
from .scanning import list_images as list_images
from .videos import VideoFrame

MAX_ASPECT = 4  # a longer image is cut to its middle: the rest never enters the central square
# array: uint8, (height, width) or (height, width, 3); bytes: JPEG or PNG
Item = Path | Image.Image | np.ndarray | bytes | VideoFrame
_CHANNELS = (1, 3, 4)
_IMAGE_KEYS = ("image", "img")
_LABEL_KEYS = ("label", "labels", "fine_label")


def as_items(images: Any, channels: int = 3) -> list[Item]:
    """Return a list with one item per image.

    Args:
        images: One image or several: a uint8 or float (0 to 1) array or tensor, (n, channels, height, width) or
            (n, height, width, channels), or a single image of that kind; PIL images; paths; a folder; a torch dataset,
            whose labels are ignored; or a list of images.
        channels: Channels of the model. A model of grey images reads an array (3, height, width) as three images.

    Raises:
        UserError: The input is not of this kind.
    """
    if isinstance(images, str | PathLike):
        return list(list_images(images))
    if isinstance(images, Image.Image | bytes | VideoFrame):
        return [images]
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OUS":
        return _from_array(images, channels)
    if is_dataset(images):
        return split_dataset(images)[0]
    if not isinstance(images, Iterable) or isinstance(images, Mapping | Set):
        raise UserError(
            f"Images must be arrays, tensors, PIL images, paths, a torch dataset or lists of these, not "
            f"{type(images).__name__}."
        )
    return [item for image in images for item in _list_entry(image)]


def is_dataset(images: Any) -> bool:
    """Return whether the input is a map-style dataset, as torch, torchvision and Hugging Face have them."""
    plain = isinstance(images, Sequence | Mapping | Set | np.ndarray | Tensor | str | bytes)
    return not plain and hasattr(images, "__getitem__") and hasattr(images, "__len__")


def split_dataset(dataset: Any) -> tuple[list[Item], list[Any] | None]:
    """Return the images of a map-style dataset and its labels.

    Args:
        dataset: Its entries are images, (image, label) pairs or dictionaries with `image` (or `img`) and `label`.

    Returns:
        The images, and the labels or None if the entries have none. Integer labels become class names if the dataset
        has an attribute `classes`.
    """
    items: list[Item] = []
    labels: list[Any] = []
    names = getattr(dataset, "classes", None)
    for index in range(len(dataset)):
        entry = dataset[index]
        label = None
        if isinstance(entry, Mapping):
            image = next((entry[key] for key in _IMAGE_KEYS if key in entry), None)
            label = next((entry[key] for key in _LABEL_KEYS if key in entry), None)
        elif isinstance(entry, tuple | list) and len(entry) == 2:
            image, label = entry
        else:
            image = entry
        if image is None:
            raise UserError(f"Entry {index} of the dataset has no image: use the key `image` or (image, label) pairs.")
        items += _list_entry(image)
        if label is not None:
            number = label.item() if hasattr(label, "item") else label
            labels.append(names[number] if names and isinstance(number, int) else number)
    if labels and len(labels) != len(items):
        raise UserError("Some entries of the dataset have a label and some have none.")
    return items, labels or None


def _list_entry(image: Any) -> list[Item]:
    items = as_items(image)
    if len(items) != 1 and not isinstance(image, str | PathLike):
        raise UserError("Each entry of a list of images must be one image.")
    return items


def _from_array(array: np.ndarray, channels: int) -> list[Item]:
    first = (1,) if channels == 1 else _CHANNELS  # of a single image
    if array.ndim == 2 or (array.ndim == 3 and (array.shape[-1] in _CHANNELS or array.shape[0] in first)):
        array = array[None]
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1] in _CHANNELS:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[-1] not in _CHANNELS or 0 in array.shape[1:]:
        raise UserError(
            f"An array of images must have the shape (n, channels, height, width) or (n, height, width, channels) with "
            f"1, 3 or 4 channels, not {array.shape}."
        )
    pixels = _to_uint8(array)
    return list(pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :3])  # alpha is ignored, as in files


def _to_uint8(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint8 or not array.size:
        return array.astype(np.uint8, copy=False)
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    low, high = array.min(), array.max()
    if array.dtype.kind == "f" and low >= 0 and high <= 1:  # False for NaN
        return np.rint(array * 255).astype(np.uint8)
    if array.dtype.kind in "iu" and low >= 0 and high <= 255:
        return array.astype(np.uint8)
    raise UserError(
        f"Images of type {array.dtype} have values from {low} to {high}: floats must lie between 0 and 1, integers "
        "between 0 and 255. Rescale them, or convert them to uint8."
    )


def open_item(item: Item, times: Callable[[int, int], float] = lambda *_: 1) -> tuple[Image.Image, tuple[int, int]]:
    """Open an image in RGB.

    Args:
        item: The image.
        times: How many times smaller than its width and height the image may be decoded; see `read_reduced`.

    Returns:
        The image, perhaps reduced, and its full width and height. A very long image is cut to its middle.

    Raises:
        UserError: The image cannot be read.
    """
    if isinstance(item, Path):
        image, size = read_reduced(item, times)
    else:
        image = _open_in_memory(item)
        size = image.size
    return _cut_middle(image, size)


def group_of(item: Item) -> str | None:
    """Return what identifies the source of an image that has several similar ones, such as a video, or None.

    Images of a group belong into the same fold of a cross-validation.
    """
    return item.group if isinstance(item, VideoFrame) else None


def item_name(items: Sequence[Item], index: int) -> str:
    """Return the name of an image in messages: its path, the video and time of a frame, or `image 3`."""
    item = items[index]
    if isinstance(item, Path | VideoFrame):
        return display_path(Path(str(item)))
    return f"image {index + 1}"


def _open_in_memory(item: Image.Image | np.ndarray | bytes | VideoFrame) -> Image.Image:
    if isinstance(item, VideoFrame):
        item = item.jpeg
    if isinstance(item, np.ndarray):
        return Image.fromarray(item).convert("RGB")
    try:
        image = Image.open(io.BytesIO(item), formats=("JPEG", "PNG")) if isinstance(item, bytes) else item
        return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # Pillow raises many types on damaged images, which it decodes lazily
        raise UnreadableImage("The image", str(error).rstrip(".")) from error


def _cut_middle(image: Image.Image, size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int]]:
    if max(size) <= MAX_ASPECT * min(size):
        return image, size
    width, height = (min(side, MAX_ASPECT * min(image.size)) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    return image, image.size


@dataclass(frozen=True)
class ImageFormat:
    """How the network of a model reads images.

    Attributes:
        transform: Normalisation, crops and augmentation.
        channels: 1 or 3.
        size: Height and width of images that were learned as stored in memory; other images are resized to it. None:
            images are resized and cropped as `transform.size` says.
    """

    transform: TransformSpec
    channels: int = 3
    size: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width of what the model reads; None if any size is accepted."""
        side = self.transform.size
        size = self.size or ((side, side) if side else None)
        return None if size is None else (self.channels, *size)


class ItemReader:
    """Images of a user, in the form in which a network reads them.

    Args:
        items: The images.
        format: How the network reads them.
        workers: Threads that decode images; 1: the calling thread.
    """

    def __init__(self, items: Sequence[Item], format: ImageFormat, workers: int = 2):
        self.items, self.format, self.workers = items, format, workers
        self.transform = PixelTransform(format.transform)
        cropped = format.size is None and format.transform.size is not None
        self._files = _ItemFiles(items, format.transform, workers) if cropped else None

    @property
    def prefetch(self) -> int:
        """Batches worth preparing in the background."""
        return 0 if self._files is None else self._files.prefetch

    def pixels(self, indices: Sequence[int]) -> list[np.ndarray | UserError]:
        """Return the pixels of images, (height, width, channels) uint8 each, or the error of an unreadable image."""

        def read(index: int) -> np.ndarray | UserError:
            try:
                return self._pixels(index)
            except UserError as error:
                return error

        if self._files is None or self.workers == 1 or len(indices) == 1:
            return [read(index) for index in indices]
        return list(self._files.pool.map(read, indices))

    def normalized(self, pixels: Sequence[np.ndarray]) -> Tensor:
        """Return network inputs, (n, channels, height, width) float, from pixels."""
        return self.transform.normalize(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2))

    def view(self) -> View:
        """Return the images as a `View`, which also augments them.

        Raises:
            UserError: An image cannot be read.
        """
        if self._files is not None:
            return self._files
        pixels = [torch.from_numpy(self._pixels(index)).permute(2, 0, 1) for index in range(len(self.items))]
        return ArrayView(ArrayImages(torch.stack(pixels)), self.format.transform)

    def _pixels(self, index: int) -> np.ndarray:
        if self._files is not None:
            return self._files.centre_crop(index)
        item = self.items[index]
        image = read_reduced(item, lambda *_: 1)[0] if isinstance(item, Path) else _open_in_memory(item)
        if self.format.channels == 1:
            image = image.convert("L")
        size = self.format.size
        if size is not None and image.size != size[::-1]:
            image = image.resize(size[::-1], Image.Resampling.BILINEAR)
        pixels = np.array(image)
        return pixels[..., None] if pixels.ndim == 2 else pixels


class _ItemFiles(FileView):
    """Items as a view: decoded by threads, cropped, augmented for training."""

    def __init__(self, items: Sequence[Item], transform: TransformSpec, workers: int):
        super().__init__(FileImages(()), transform, workers)
        self.items = items

    def _read(self, index: int, times: Callable[[int, int], float]) -> tuple[Image.Image, tuple[int, int]]:
        return open_item(self.items[index], times)

    def centre_crop(self, index: int) -> np.ndarray:
        """Return the central square, (size, size, 3) uint8."""
        return self._centre_crop(index)
