"""What a dataset is to the rest of the program: images in memory or on disk, labels, class names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from .cache import Copies


@dataclass(frozen=True)
class ArrayImages:
    """Small images, all in memory: uint8, (n, channels, height, width)."""

    pixels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)


@dataclass(frozen=True)
class FileImages:
    """Image files that are decoded when they are needed."""

    paths: tuple[Path, ...]
    copies: Copies | None = None  # resized ones on disk, to be read instead

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class Split:
    images: ArrayImages | FileImages
    labels: NDArray[np.int64]  # indices into Dataset.class_names, in dataset order

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """Images with labels, in two parts, to learn from and to test on."""

    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split
    channels: int

    @staticmethod
    def from_arrays(x: Any, y: Any, x_test: Any, y_test: Any, class_names: Sequence[str] | None = None) -> Dataset:
        """From images in memory.

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
    def from_torch(train: Any, test: Any, class_names: Sequence[str] | None = None) -> Dataset:
        """From two map-style datasets of torch or torchvision whose items are (image, label).

        Args:
            train: Its images are PIL images or uint8 tensors of one size; without transforms that normalise or augment,
                which a run does itself.
            test: Likewise.
            class_names: By default `train.classes`, else the different labels, sorted.
        """
        from .datasets.arrays import dataset_from_torch

        return dataset_from_torch(train, test, class_names)

    def fingerprint(self) -> str:
        """A hash of what is in it: labels, class names, pixels of images in memory; of files names, sizes and the bytes
        at both ends."""
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
    """The first and last bytes of a file: another picture differs there, and reading all of a large set takes long."""
    with path.open("rb") as file:
        first = file.read(length)
        file.seek(max(0, path.stat().st_size - length))
        return first + file.read(length)
