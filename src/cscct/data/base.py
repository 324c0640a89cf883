"""What a dataset is to the rest of the program: images in memory or on disk, labels, class names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


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
    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split
    channels: int
