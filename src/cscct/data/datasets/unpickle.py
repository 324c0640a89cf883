"""Safe reading of untrusted pickles: only plain values and numeric arrays are built."""

from __future__ import annotations

import hashlib
import pickle
import re
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_LARGE = 1 << 16


def text_of(value: str | bytes | bytearray) -> str:
    """Return a string of a pickle as text. Python 2 wrote bytes, Python 3 writes text."""
    return value if isinstance(value, str) else value.decode("latin1")


class HashingReader:
    """File object that hashes the data it reads.

    Large blocks are returned as bytearray, which torch can use without a copy.

    Args:
        file: Binary file.

    Attributes:
        md5: Hash of the data read so far.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file: Any = file
        self.md5 = hashlib.md5(usedforsecurity=False)

    def read(self, size: int) -> bytes:
        """Return `size` bytes.

        Raises:
            EOFError: If the file ends before.
        """
        block: Any = self._file.read(size) if size < _LARGE else self._read_large(size)
        if len(block) < size:
            raise EOFError("it ends too early")
        self.md5.update(block)
        return block

    def _read_large(self, size: int) -> bytearray:
        """Read in pieces: a single call on a file in an archive would create a second copy."""
        block = bytearray(size)
        with memoryview(block) as view:
            end = 0
            while count := self._file.readinto(view[end : end + _LARGE]):
                end += count
        del block[end:]
        return block

    def readline(self) -> bytes:
        """Return a line.

        Raises:
            EOFError: If the file ends before the end of the line.
        """
        line: bytes = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("it ends too early")
        self.md5.update(line)
        return line

    def drain(self) -> None:
        """Hash the rest of the file."""
        while rest := self._file.read(_LARGE):
            self.md5.update(rest)


class Refused(Exception):
    """The pickle contains something other than plain values and numeric arrays."""


class _Dtype:
    """Replacement of numpy.dtype during unpickling. Allows numbers and short strings, but no objects."""

    def __init__(self, name: str | bytes, align: object = False, copy: object = False) -> None:
        self.name = text_of(name)
        self.order = "|"
        if not re.fullmatch(r"b1|[iu][1248]|f[248]|[SU]\d{1,4}", self.name):
            raise Refused(f"holds an array of type {self.name[:40]!r} (objects rather than numbers)")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = text_of(state[1])

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.name)


class PlainArray:
    """Replacement of numpy.ndarray during unpickling.

    Attributes:
        values: The array.
    """

    values: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        shape, dtype, fortran, data = state[-4:]
        self.fill(data, dtype, shape, "F" if fortran else "C")

    def fill(self, data: Any, dtype: _Dtype, shape: Any, order: Any) -> None:
        """Set the values of the array from its bytes."""
        if isinstance(data, str):  # Python 2 bytes that Python 3 wrote again as text
            data = data.encode("latin1")
        self.values = np.frombuffer(data, dtype.numpy()).reshape(shape, order=order)


class SafeUnpickler(pickle._Unpickler):
    """Unpickler that maps every allowed name to a safe replacement and rejects all other names.

    The Python implementation is used because the C implementation makes another copy of each block (154 MB).
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of a name.

        Raises:
            Refused: If the name is not allowed.
        """
        allowed = {
            "numpy.ndarray": PlainArray,
            "numpy.dtype": _Dtype,
            "numpy.core.multiarray._reconstruct": self._reconstruct,
            "numpy.core.multiarray.scalar": self._scalar,
            "numpy.core.numeric._frombuffer": self._frombuffer,  # pickle protocol 5
            "_codecs.encode": self._encode,
        }
        full_name = f"{module}.{name}"
        replacement = allowed.get(full_name.replace("numpy._core.", "numpy.core.", 1))
        if replacement is None:
            raise Refused(f"tries to build `{full_name}`")
        return replacement

    def _reconstruct(self, kind: object, shape: object, typecode: object) -> PlainArray:
        return PlainArray()  # __setstate__ sets its content

    def _frombuffer(self, data: Any, dtype: _Dtype, shape: Any, order: Any) -> PlainArray:
        array = PlainArray()
        array.fill(data, dtype, shape, text_of(order))
        return array

    def _scalar(self, dtype: _Dtype, data: Any) -> Any:
        array = PlainArray()
        array.fill(data, dtype, (), "C")
        return array.values.item()

    def _encode(self, text: str, encoding: str = "latin1") -> bytes:
        return text.encode("latin1")
