"""Handwritten digits of scikit-learn: 8x8 grey images, included in the library."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ..base import ArrayImages, Dataset, Split
from ..registry import LoadRequest


def load_digits(request: LoadRequest) -> Dataset:
    """Load the digits. Every fifth image of a class is a test image, independent of the seed.

    Args:
        request: Options of the loader; not used.
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8), from 0..16
    labels = bunch.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[4::5]] = True

    def part(mask: NDArray[np.bool_]) -> Split:
        return Split(ArrayImages(torch.from_numpy(pixels[mask])), labels[mask])

    names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", names, part(~is_test), part(is_test), channels=1)
