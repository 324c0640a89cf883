"""Where the outputs of frozen stages are kept: in memory, in a temporary file, or in a file that runs share."""

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
    """A row of numbers for each image, filled one by one. shape: of all rows."""

    def __init__(self, shape: tuple[int, ...], dtype: type[np.floating[Any]], *, in_file: bool):
        self.rows: NDArray[Any] = _room(shape, dtype, in_file)
        self.there = np.zeros(shape[0], dtype=bool)

    def missing(self, numbers: Tensor) -> Tensor:
        """Those of the rows that are not there yet, each once."""
        wanted = np.unique(numbers.numpy())
        return torch.from_numpy(wanted[~self.there[wanted]])

    def put(self, numbers: Tensor, values: Tensor) -> None:
        limit = float(np.finfo(self.rows.dtype).max)  # beyond it, 16 bits would say infinity
        self.rows[numbers.numpy()] = values.clamp(-limit, limit).numpy().astype(self.rows.dtype)
        self.there[numbers.numpy()] = True

    def get(self, numbers: Tensor) -> Tensor:
        return torch.from_numpy(self.rows[numbers.numpy()].astype(np.float32))


class SharedOutputs(Outputs):
    """In two files that other runs read and fill too, also at the same time: the rows, and a checksum of each.

    A row is computed to the same bits by whoever computes it, so it does not matter who writes last. One whose checksum
    is wrong, because a process or the machine died while it was written, is missing.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: type[np.floating[Any]]):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.rows = _mapped(path.with_name(path.name + ".rows"), shape, dtype)
            self.sums = _mapped(path.with_name(path.name + ".sums"), shape[:1], np.uint32)
        except OSError as error:
            raise UserError(
                f"The outputs of the frozen stages cannot be kept in {path.parent} ({error.strerror}): name another "
                "folder in runtime.trunk_cache."
            ) from error
        self.there = np.zeros(shape[0], dtype=bool)  # and found to be whole

    def missing(self, numbers: Tensor) -> Tensor:
        for number in super().missing(numbers).tolist():
            if self.sums[number] and self.sums[number] == self._sum(number):
                self.there[number] = True
        return super().missing(numbers)

    def put(self, numbers: Tensor, values: Tensor) -> None:
        super().put(numbers, values)
        for number in numbers.tolist():
            self.sums[number] = self._sum(number)

    def _sum(self, number: int) -> int:
        return zlib.crc32(self.rows[number].tobytes()) or 1  # 0: nothing was written


def _room(shape: tuple[int, ...], dtype: type[np.floating[Any]], in_file: bool) -> NDArray[Any]:
    """Memory and disk space are taken by the system as it is filled."""
    if not in_file:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it; it is gone with the process, however that ends
        return np.memmap(file, dtype, mode="w+", shape=shape)


def _mapped(path: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    with path.open("a+b") as file:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if file.seek(0, 2) < size:
            file.truncate(size)
    return np.memmap(path, dtype, mode="r+", shape=shape)
