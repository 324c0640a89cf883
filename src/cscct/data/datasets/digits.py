"""Handwritten digits of scikit-learn: 8x8 grey images, included in the library."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

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
    images, labels = _read()
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8), from 0..16
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[4::5]] = True

    def part(mask: NDArray[np.bool_]) -> Split:
        return Split(ArrayImages(torch.from_numpy(pixels[mask])), labels[mask])

    names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", names, part(~is_test), part(is_test), channels=1)


def _read() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return images, (1797, 8, 8) from 0 to 16, and labels, from the file of scikit-learn if it is where it has been.

    The import of scikit-learn takes about as long as that of torch.
    """
    spec = find_spec("sklearn")
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz" if spec and spec.origin else None
    if file is not None and file.exists():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn import datasets

    bunch = datasets.load_digits()
    return bunch.images, bunch.target.astype(np.int64)
