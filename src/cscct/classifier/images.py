"""Images as users hold them: arrays, PIL images, paths, folders of class folders; and what is wrong with them."""

from __future__ import annotations

import io
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from ..data.augment import FileView
from ..data.base import FileImages
from ..data.image_files import SUFFIXES, fault_at_a_glance, looks_like_image, read_reduced, to_rgb
from ..errors import UserError
from ..specs import TransformSpec

FEW = 5  # images of a class with fewer are learned, with a warning
WIDEST = 4  # times the short side; what lies beyond never enters the central square
Item = Path | Image.Image | np.ndarray | bytes  # array: uint8, (height, width) or (height, width, 3); bytes: a JPEG
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Problem:
    """Something about the images that a person should know."""

    kind: str  # unreadable, duplicate, few or skipped
    path: str  # of a file or folder; for images in memory their number, for a class its label
    text: str


def shown(path: Path) -> str:
    """A path as text; bytes that are none are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class FolderListing:
    """The images in a folder of class folders."""

    paths: tuple[Path, ...]
    labels: tuple[str, ...]
    problems: tuple[Problem, ...]


def read_folder(path: str | PathLike[str]) -> FolderListing:
    """Lists `path/<class>/*`. Links are followed; folders within a class folder belong to it. Files are not decoded:
    what that finds is told by `learn`."""
    root = Path(path)
    folders = [folder for folder in _entries(root) if folder.is_dir()]
    problems = [
        Problem("skipped", shown(file), "not in a class folder")
        for file in _entries(root)
        if not file.is_dir() and file.suffix.lower() in SUFFIXES
    ]
    paths: list[Path] = []
    labels: list[str] = []
    for folder in folders:
        found, skipped = _images_in(folder)
        problems += skipped
        paths += found
        labels += [unicodedata.normalize("NFC", folder.name)] * len(found)  # some systems take accents apart
        if not found:
            problems.append(Problem("few", shown(folder), "no image: the class is left out"))
    if not folders:
        raise UserError(f"{root} has no class folders: put the images of each class into a folder with its name.")
    if not paths:
        first = next((f", for example {one.path}: {one.text}" for one in problems if one.kind != "few"), "")
        raise UserError(f"There are no images in the class folders of {root} that can be read{first}.")
    return FolderListing(tuple(paths), tuple(labels), tuple(problems))


def list_images(path: str | PathLike[str]) -> list[Path]:
    """A file as it is; of a folder all image files in it and in its folders, in the order of their names."""
    root = Path(path)
    if not root.is_dir():
        return [root]
    found = _images_in(root)[0]
    if not found:
        raise UserError(f"There are no images in {root}.")
    return found


def _images_in(folder: Path) -> tuple[list[Path], list[Problem]]:
    """Image files of a folder, nested ones included, and what was left out. A folder that links lead into twice is read
    once."""
    images: list[Path] = []
    problems: list[Problem] = []
    seen: set[Path] = set()
    waiting = [folder]
    while waiting:
        current = waiting.pop(0)
        if current.resolve() in seen:
            continue
        seen.add(current.resolve())
        for entry in _entries(current):
            if entry.is_dir():
                waiting.append(entry)
            elif not entry.is_file():
                problems.append(Problem("skipped", shown(entry), "not a regular file, or a link that leads nowhere"))
            elif not looks_like_image(entry):
                problems.append(Problem("skipped", shown(entry), "not an image file"))
            elif (fault := fault_at_a_glance(entry)) is not None:
                problems.append(Problem("unreadable", shown(entry), fault))
            else:
                images.append(entry)
    return sorted(images), problems


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error


def as_items(images: Any) -> list[Item]:
    """A list with one item for each image. images: one image or many, as `IncrementalClassifier.learn` takes them."""
    if isinstance(images, str | PathLike):
        return list(list_images(images))
    if isinstance(images, Image.Image | bytes):
        return [images]
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OUS":
        return _from_array(images)
    if not isinstance(images, Iterable) or isinstance(images, Mapping | Set):
        raise UserError(f"Images are arrays, PIL images, paths or lists of these, not {type(images).__name__}.")
    return [item for one in images for item in _single(one)]


def _single(one: Any) -> list[Item]:
    items = as_items(one)
    if len(items) != 1 and not isinstance(one, str | PathLike):
        raise UserError("In a list of images each entry must be one image.")
    return items


def _from_array(array: np.ndarray) -> list[Item]:
    if array.ndim == 2 or (array.ndim == 3 and (array.shape[-1] in _CHANNELS or array.shape[0] in _CHANNELS)):
        array = array[None]
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1] in _CHANNELS:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[-1] not in _CHANNELS or 0 in array.shape[1:]:
        raise UserError(
            f"An array of images has the shape (n, channels, height, width) or (n, height, width, channels) with 1, 3 "
            f"or 4 channels, not {array.shape}."
        )
    pixels = _eight_bits(array)
    return list(pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :3])  # alpha is left out, as in files


def _eight_bits(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint8 or not array.size:
        return array.astype(np.uint8, copy=False)
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    low, high = array.min(), array.max()
    if array.dtype.kind == "f" and low >= 0 and high <= 1:  # false for NaN too
        return np.rint(array * 255).astype(np.uint8)
    if array.dtype.kind in "iu" and low >= 0 and high <= 255:
        return array.astype(np.uint8)
    raise UserError(
        f"Images of type {array.dtype} reach from {low} to {high}: floats must lie between 0 and 1, whole numbers "
        "between 0 and 255. Divide them, or convert them to uint8."
    )


def open_item(item: Item, times: Callable[[int, int], float] = lambda *_: 1) -> tuple[Image.Image, tuple[int, int]]:
    """The picture in RGB, perhaps reduced as `read_reduced` does it, and its full width and height. Of a very long one
    only the middle."""
    if isinstance(item, Path):
        image, size = read_reduced(item, times)
    else:
        image = _in_memory(item)
        size = image.size
    return _middle(image, size)


def _in_memory(item: Image.Image | np.ndarray | bytes) -> Image.Image:
    if isinstance(item, np.ndarray):
        return Image.fromarray(item).convert("RGB")
    try:
        image = Image.open(io.BytesIO(item), formats=("JPEG",)) if isinstance(item, bytes) else item
        return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # Pillow fails in many ways on damaged images, which it reads when they are needed
        raise UserError(f"The image cannot be read: {error}.") from error


def _middle(image: Image.Image, size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int]]:
    if max(size) <= WIDEST * min(size):
        return image, size
    width, height = (min(side, WIDEST * min(image.size)) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    return image, image.size


def read_images(images: Any) -> tuple[list[int], dict[int, str]]:
    """Positions of the images that can be read, and what is wrong with the others. images: as `learn` takes them."""
    errors: dict[int, str] = {}
    items = as_items(images)
    for index, item in enumerate(items):
        try:
            open_item(item, lambda *size: min(size) / 64)  # all of a file is read, but decoded in less time
        except UserError as error:
            errors[index] = str(error)
    return [index for index in range(len(items)) if index not in errors], errors


class ItemView(FileView):
    """Items as network inputs: the central crop, or augmented ones for fine-tuning."""

    def __init__(self, items: Sequence[Item], spec: TransformSpec, workers: int = 2):
        super().__init__(FileImages(()), spec, workers)
        self.items = items

    def _read(self, index: int, times: Callable[[int, int], float]) -> tuple[Image.Image, tuple[int, int]]:
        return open_item(self.items[index], times)

    def crops(self, indices: Sequence[int]) -> list[np.ndarray | UserError]:
        """(size, size, 3) uint8 each, or what is wrong with the image."""

        def crop(index: int) -> np.ndarray | UserError:
            try:
                return self._centre_crop(index)
            except UserError as error:
                return error

        return [crop(indices[0])] if len(indices) == 1 else list(self.pool.map(crop, indices))
