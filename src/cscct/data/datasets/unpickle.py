"""Reading pickles without trusting them: plain values and arrays of numbers are built, everything else is refused."""

from __future__ import annotations

import hashlib
import pickle
import re
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_LARGE = 1 << 16


def text_of(value: str | bytes | bytearray) -> str:
    """Python 2 wrote its strings as bytes, Python 3 writes them as text: both are met."""
    return value if isinstance(value, str) else value.decode("latin1")


class HashingReader:
    """Hashes what passes through, so that a file is read once. Large blocks come as bytearray: memory that
    torch can take over without a copy."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file: Any = file
        self.md5 = hashlib.md5(usedforsecurity=False)

    def read(self, size: int) -> bytes:
        block: Any = self._file.read(size) if size < _LARGE else self._read_large(size)
        if len(block) < size:
            raise EOFError("it ends too early")
        self.md5.update(block)
        return block

    def _read_large(self, size: int) -> bytearray:
        """Piece by piece: inside an archive, one call for all of it would make a second copy."""
        block = bytearray(size)
        with memoryview(block) as view:
            got = 0
            while more := self._file.readinto(view[got : got + _LARGE]):
                got += more
        del block[got:]
        return block

    def readline(self) -> bytes:
        line: bytes = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("it ends too early")
        self.md5.update(line)
        return line

    def drain(self) -> None:
        while rest := self._file.read(_LARGE):
            self.md5.update(rest)


class Refused(Exception):
    """The pickle asks for something that CIFAR-100 does not need."""


class _Dtype:
    """Stands in for numpy.dtype while a pickle is read: only numbers and short strings, never objects."""

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
    """Stands in for numpy.ndarray while a pickle is read."""

    values: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        shape, dtype, fortran, data = state[-4:]
        self.fill(data, dtype, shape, "F" if fortran else "C")

    def fill(self, data: Any, dtype: _Dtype, shape: Any, order: Any) -> None:
        if isinstance(data, str):  # Python 2 bytes that Python 3 wrote again as text
            data = data.encode("latin1")
        self.values = np.frombuffer(data, dtype.numpy()).reshape(shape, order=order)


class SafeUnpickler(pickle._Unpickler):
    """Every name a pickle may ask for is answered by one of ours.

    The Python unpickler and not the C one: that copies each block once more, here 154 MB.
    """

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            "numpy.ndarray": PlainArray,
            "numpy.dtype": _Dtype,
            "numpy.core.multiarray._reconstruct": self._reconstruct,
            "numpy.core.multiarray.scalar": self._scalar,
            "numpy.core.numeric._frombuffer": self._frombuffer,  # pickle protocol 5
            "_codecs.encode": self._encode,
        }
        asked = f"{module}.{name}"
        found = allowed.get(asked.replace("numpy._core.", "numpy.core.", 1))
        if found is None:
            raise Refused(f"tries to build `{asked}`")
        return found

    def _reconstruct(self, kind: object, shape: object, typecode: object) -> PlainArray:
        return PlainArray()  # its content follows, through __setstate__

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
