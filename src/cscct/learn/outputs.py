"""Storage of the outputs of frozen stages: in memory, in a temporary file, or in files shared by runs."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError


class Outputs:
    """Rows of numbers, one per image, that are filled in any order.

    Args:
        shape: Number of rows, and shape of a row.
        dtype: Type of the stored numbers.
        in_file: Whether the rows are stored in a temporary file instead of memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: type[np.floating[Any]], *, in_file: bool):
        self.rows: NDArray[Any] = _allocate(shape, dtype, in_file)
        self.filled = np.zeros(shape[0], dtype=bool)

    def missing(self, indices: Tensor) -> Tensor:
        """Return the indices of rows that are not filled, without duplicates.

        Args:
            indices: Row indices, shape (k,).
        """
        unique = np.unique(indices.numpy())
        return torch.from_numpy(unique[~self.filled[unique]])

    def put(self, indices: Tensor, values: Tensor) -> None:
        """Fill rows.

        Args:
            indices: Row indices, shape (k,).
            values: Rows, shape (k, ...), float32.
        """
        limit = float(np.finfo(self.rows.dtype).max)  # larger values would become infinite in float16
        self.rows[indices.numpy()] = values.clamp(-limit, limit).numpy().astype(self.rows.dtype)
        self.filled[indices.numpy()] = True

    def get(self, indices: Tensor) -> Tensor:
        """Return filled rows, shape (k, ...), float32.

        Args:
            indices: Row indices, shape (k,).
        """
        return torch.from_numpy(self.rows[indices.numpy()].astype(np.float32))


class SharedOutputs(Outputs):
    """Rows in files that several runs read and fill, possibly at the same time.

    One file contains the rows, another one their checksums. All runs compute the same bits for a row, so the order of
    writes does not matter. A row with a wrong checksum, left by a process that was killed, counts as missing.

    Args:
        path: Path prefix of the files.
        shape: Number of rows, and shape of a row.
        dtype: Type of the stored numbers.

    Raises:
        UserError: If the files cannot be created.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: type[np.floating[Any]]):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.rows = _mapped(path.with_name(path.name + ".rows"), shape, dtype)
            self.sums = _mapped(path.with_name(path.name + ".sums"), shape[:1], np.uint32)
        except OSError as error:
            raise UserError(
                f"The outputs of the frozen stages cannot be stored in {path.parent} ({error.strerror}): set "
                "runtime.frozen_cache_dir to another folder."
            ) from error
        self.filled = np.zeros(shape[0], dtype=bool)  # rows whose checksum has been verified

    def missing(self, indices: Tensor) -> Tensor:
        """Return the indices of rows that are not filled or damaged, without duplicates."""
        for index in super().missing(indices).tolist():
            if self.sums[index] and self.sums[index] == self._sum(index):
                self.filled[index] = True
        return super().missing(indices)

    def put(self, indices: Tensor, values: Tensor) -> None:
        """Fill rows and store their checksums."""
        super().put(indices, values)
        for index in indices.tolist():
            self.sums[index] = self._sum(index)

    def _sum(self, index: int) -> int:
        return zlib.crc32(self.rows[index].tobytes()) or 1  # 0 means that the row is empty


def _allocate(shape: tuple[int, ...], dtype: type[np.floating[Any]], in_file: bool) -> NDArray[Any]:
    """Return an uninitialised array. The system allocates memory and disk space when rows are filled."""
    if not in_file:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:  # the mapping keeps the file until the process ends
        return np.memmap(file, dtype, mode="w+", shape=shape)


def _mapped(path: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    with path.open("a+b") as file:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if file.seek(0, 2) < size:
            file.truncate(size)
    return np.memmap(path, dtype, mode="r+", shape=shape)
