"""Datasets: images in memory or on disk, with labels and class names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from .resized_copies import ResizedCopies

CPU = torch.device("cpu")
PINNED_DEVICES = {"cuda"}  # devices that copy from pinned memory while the CPU goes on


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the CPU to a device. The CPU does not wait for a GPU.

    Args:
        tensor: Tensor in the memory of the CPU.
        device: Device of the result. For the CPU, the tensor itself is returned.
    """
    pinned = device.type in PINNED_DEVICES
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


@dataclass(frozen=True)
class ArrayImages:
    """Small images, all in memory: uint8, (n, channels, height, width)."""

    pixels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def extent(self) -> str:
        """Channels, height and width, as in `1x8x8`."""
        return "x".join(map(str, self.pixels.shape[1:]))

    def __repr__(self) -> str:
        return f"ArrayImages({len(self)} images, {self.extent})"


@dataclass(frozen=True)
class FileImages:
    """Image files that are decoded when they are needed."""

    paths: tuple[Path, ...]
    copies: ResizedCopies | None = None  # on disk, read instead of the files

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def extent(self) -> str:
        """`on disk`, because files may differ in size."""
        return "on disk"

    def __repr__(self) -> str:
        return f"FileImages({len(self)} images)"


@dataclass(frozen=True)
class Split:
    images: ArrayImages | FileImages
    labels: NDArray[np.int64]  # indices into Dataset.class_names, in dataset order

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Split({len(self)} images of {len(np.unique(self.labels))} classes, {self.images.extent})"


@dataclass(frozen=True)
class Dataset:
    """Images with labels and class names, in a training split and a test split."""

    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split
    channels: int

    def __repr__(self) -> str:
        counts = f"{len(self.train)} train and {len(self.test)} test images"
        return f"Dataset({self.name!r}, {len(self.class_names)} classes, {counts}, {self.train.images.extent})"

    @staticmethod
    def from_arrays(x: Any, y: Any, x_test: Any, y_test: Any, class_names: Sequence[str] | None = None) -> Dataset:
        """Return a dataset of images in memory.

        Args:
            x: Training images: a uint8 array or tensor, (n, channels, height, width), or (n, height, width) if grey.
            y: For each image the index of its class in `class_names`, or the name of its class.
            x_test: Test images.
            y_test: Their labels.
            class_names: By default the different labels, sorted.
        """
        from .datasets.arrays import dataset_from_arrays

        return dataset_from_arrays((x, y), (x_test, y_test), class_names)

    @staticmethod
    def from_torch(
        train: Any,
        test: Any,
        class_names: Sequence[str] | None = None,
        *,
        image_key: str | None = None,
        label_key: str | None = None,
    ) -> Dataset:
        """Create a dataset from two map-style datasets of torch, torchvision or Hugging Face.

        Items are pairs (image, label), or dictionaries as Hugging Face datasets return them. Images are PIL images or
        uint8 tensors (channels, height, width) of one size, without transforms that normalise or augment: a run
        applies its own.

        Args:
            train: Training images.
            test: Test images.
            class_names: Class names; by default `train.classes` or `train.features[label_key].names`, else the sorted
                labels.
            image_key: Key of the image in dictionary items; by default `image` or `img`.
            label_key: Key of the label in dictionary items; by default `label`, `labels` or `fine_label`.

        Returns:
            The dataset, with all images in memory.

        Raises:
            UserError: If a key is missing, or images differ in size.
        """
        from .datasets.arrays import dataset_from_torch

        return dataset_from_torch(train, test, class_names, (image_key, label_key))

    @staticmethod
    def from_huggingface(
        source: Any,
        class_names: Sequence[str] | None = None,
        *,
        test: str | None = None,
        image_key: str | None = None,
        label_key: str | None = None,
    ) -> Dataset:
        """Create a dataset from a dataset of Hugging Face with the splits `train` and `test`.

        Args:
            source: Folder that `save_to_disk` wrote, or what `datasets.load_dataset` returned. Nothing is downloaded.
            class_names: See `from_torch`.
            test: Split of the test images; by default `test`, else `validation`.
            image_key: See `from_torch`.
            label_key: See `from_torch`.

        Returns:
            The dataset, with all images in memory.

        Raises:
            UserError: If the folder cannot be read, a split or a key is missing, or images differ in size.
        """
        from .datasets.huggingface import dataset_from_huggingface

        return dataset_from_huggingface(source, class_names, (image_key, label_key), test)

    def fingerprint(self) -> str:
        """Return a hash of the content: class names, labels, and pixels of images in memory; for image files their
        names, sizes, and first and last bytes."""
        digest = hashlib.sha256(repr(self.class_names).encode())
        for split in (self.train, self.test):
            digest.update(np.ascontiguousarray(split.labels).tobytes())
            if isinstance(split.images, ArrayImages):
                digest.update(split.images.pixels.contiguous().numpy().data)
            else:
                for path in split.images.paths:
                    digest.update(f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode())
                    digest.update(first_and_last_bytes(path))
        return digest.hexdigest()


def first_and_last_bytes(path: Path, length: int = 4096) -> bytes:
    """Return the first and last bytes of a file, which differ between images. Reading whole files would take long for
    large datasets."""
    with path.open("rb") as file:
        first = file.read(length)
        file.seek(max(0, path.stat().st_size - length))
        return first + file.read(length)
