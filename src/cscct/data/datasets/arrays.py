"""Datasets of arrays in memory, and the file that stores them for other processes."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...errors import UserError
from ..base import ArrayImages, Dataset, Split
from ..image_files import to_rgb
from ..registry import LoadRequest, locate
from ..validation import check_dataset

NAME, FILE = "arrays", "dataset.safetensors"
Part = tuple[Any, Any]  # images, labels
IMAGE_KEYS, LABEL_KEYS = ("image", "img"), ("label", "labels", "fine_label")  # of Hugging Face datasets


def dataset_from_arrays(train: Part, test: Part, class_names: Sequence[str] | None) -> Dataset:
    """See `Dataset.from_arrays`."""
    pixels = [_pixels(images, what) for (images, _), what in ((train, "x"), (test, "x_test"))]
    if pixels[0].shape[1:] != pixels[1].shape[1:]:
        raise UserError(f"x has images of {_shape(pixels[0])}, x_test of {_shape(pixels[1])}: they must be alike.")
    labels = [_plain(y) for _, y in (train, test)]
    names = tuple(map(str, class_names)) if class_names is not None else _names(labels)
    indices = [_indices(y, names, by_index=class_names is not None) for y in labels]
    parts = [Split(ArrayImages(x), y) for x, y in zip(pixels, indices, strict=True)]
    dataset = Dataset(NAME, names, parts[0], parts[1], channels=pixels[0].shape[1])
    check_dataset(dataset)
    return dataset


def dataset_from_torch(
    train: Any, test: Any, class_names: Sequence[str] | None, keys: tuple[str | None, str | None] = (None, None)
) -> Dataset:
    """See `Dataset.from_torch`. keys: of image and label in dictionary items."""
    chosen = _item_keys(train, keys)
    names = class_names if class_names is not None else _class_names(train, chosen)
    return dataset_from_arrays(_stack(train, "train", chosen), _stack(test, "test", chosen), names)


def save_arrays(dataset: Dataset, folder: str | Path) -> None:
    """Write a dataset to a file that `cscct run METHOD arrays --data-dir FOLDER` reads.

    Args:
        dataset: A dataset of images in memory.
        folder: Folder of the file.
    """
    folder = Path(folder)
    tensors = {}
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        if not isinstance(split.images, ArrayImages):
            raise UserError("Only datasets with their images in memory can be saved as arrays.")
        tensors[f"{part}.images"] = split.images.pixels.contiguous()
        tensors[f"{part}.labels"] = torch.from_numpy(split.labels)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)  # of a link, the link
    save_file(tensors, folder / FILE, {"class_names": json.dumps(dataset.class_names)})


def load_arrays(request: LoadRequest) -> Dataset:
    """Load a dataset written by `save_arrays`."""
    places = [place / FILE for place in locate(request.data_dir, "arrays")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(
            f"There is no {FILE} in {places[0].parent}. In Python, pass a cscct.Dataset to cscct.run; for the command "
            "line, write the file with cscct.save_arrays and name its folder with --data-dir."
        )
    try:
        with safe_open(path, "pt") as file:
            names = json.loads((file.metadata() or {})["class_names"])
            train, test = ((file.get_tensor(f"{p}.images"), file.get_tensor(f"{p}.labels")) for p in ("train", "test"))
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise UserError(f"{path} is not a dataset written by cscct ({error}).") from error
    return dataset_from_arrays(train, test, names)


def _pixels(images: Any, what: str) -> Tensor:
    tensor = images.cpu() if isinstance(images, Tensor) else torch.from_numpy(np.ascontiguousarray(images))
    if tensor.dtype != torch.uint8:
        raise UserError(
            f"{what} must hold whole numbers from 0 to 255 (uint8), not {str(tensor.dtype).removeprefix('torch.')}; "
            "for values between 0 and 1: (255 * x).round().astype('uint8')."
        )
    if tensor.ndim == 3:
        tensor = tensor[:, None]
    if tensor.ndim != 4 or tensor.shape[1] not in (1, 3):
        raise UserError(
            f"{what} must have the shape (images, channels, height, width) with 1 or 3 channels, not "
            f"{tuple(tensor.shape)}; channels last: x.transpose(0, 3, 1, 2)."
        )
    return tensor


def _shape(pixels: Tensor) -> str:
    channels, height, width = pixels.shape[1:]
    return f"{channels} x {height} x {width}"


def _plain(labels: Any) -> NDArray[Any]:
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.dtype.kind == "O":  # numbers or names, as a list would hold them
        array = np.asarray(array.tolist())
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.ndim != 1:
        raise UserError(f"Labels must be one for each image, a flat list, not an array of shape {array.shape}.")
    if array.dtype.kind not in "iuU":
        raise UserError(f"Labels must be whole numbers or names, not {array.dtype}.")
    return array


def _names(labels: Sequence[NDArray[Any]]) -> tuple[str, ...]:
    different = {label for part in labels for label in part.tolist()}
    try:
        return tuple(str(label) for label in sorted(different))
    except TypeError:
        raise UserError("Labels must be all numbers or all names, not a mixture.") from None


def _indices(labels: NDArray[Any], names: Sequence[str], *, by_index: bool) -> NDArray[np.int64]:
    if len(set(names)) != len(names):
        raise UserError("class_names names a class twice.")
    if by_index and labels.dtype.kind in "iu":
        return labels.astype(np.int64)
    place = {name: index for index, name in enumerate(names)}
    unknown = [label for label in labels.tolist() if str(label) not in place]
    if unknown:
        raise UserError(f"There is an image of class {str(unknown[0])!r}, which is not among class_names.")
    return np.array([place[str(label)] for label in labels.tolist()], dtype=np.int64)


def _item_keys(dataset: Any, keys: tuple[str | None, str | None]) -> tuple[Any, Any]:
    """Keys of image and label in an item: names for dictionaries, positions for pairs."""
    item = dataset[0] if len(dataset) else ()
    if not isinstance(item, Mapping):
        if any(key is not None for key in keys):
            raise UserError("image_key and label_key are for datasets whose items are dictionaries; omit them.")
        return 0, 1
    chosen = []
    for argument, key, defaults in zip(("image_key", "label_key"), keys, (IMAGE_KEYS, LABEL_KEYS), strict=True):
        candidates = defaults if key is None else (key,)
        name = next((candidate for candidate in candidates if candidate in item), None)
        if name is None:
            raise UserError(
                f"Items of the dataset have no key {' or '.join(map(repr, candidates))}; they have "
                f"{', '.join(map(repr, item))}. Name the right one with {argument}=."
            )
        chosen.append(name)
    return chosen[0], chosen[1]


def _class_names(dataset: Any, keys: tuple[Any, Any]) -> Sequence[str] | None:
    """Class names of a torchvision or Hugging Face dataset, if it has any."""
    if keys == (0, 1):
        return getattr(dataset, "classes", None)
    features = getattr(dataset, "features", None) or {}
    return getattr(features.get(keys[1]), "names", None)


def _stack(dataset: Any, what: str, keys: tuple[Any, Any]) -> Part:
    images, labels = [], []
    for index in range(len(dataset)):
        item = dataset[index]
        image, label = (item[key] for key in keys)
        if isinstance(image, Image.Image) and image.mode not in ("L", "RGB"):
            image = to_rgb(image)
        array = image.numpy() if isinstance(image, Tensor) else np.asarray(image)
        if not isinstance(image, Tensor) and array.ndim == 3:
            array = array.transpose(2, 0, 1)  # a PIL image
        images.append(array[None] if array.ndim == 2 else array)
        labels.append(label if isinstance(label, str) else operator.index(label))
    sizes = {image.shape for image in images}
    if len(sizes) != 1:
        raise UserError(
            f"The images of the {what} dataset have {len(sizes)} different sizes; resize them to one, or put them into "
            "folders and use the dataset `folder`."
        )
    return np.stack(images), labels
