"""Resized copies of image files on disk, so that no epoch but the first has to decode them.

A folder for each set of files and each size, named by a fingerprint of both: `pixels` holds the images one after
another, 8 bits a value, `index` where each begins, how high and wide it is, and a checksum. Both only ever grow, pixels
first, so a process that is killed leaves a beginning from which the next one goes on. The checksum is compared whenever
an image is read; a copy that was changed on disk is made again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from filelock import FileLock
from PIL import Image

from ..errors import UserError
from .base import Dataset, FileImages, Split, first_and_last_bytes
from .image_files import read_reduced
from .registry import Progress

FORMAT = "2"  # of the files; another one makes other copies
_Count = Callable[[int, int], None]  # done, of so many
TOGETHER = 256  # images between two writes that are certain to last
COLUMNS = 4  # of the index: offset, height, width, checksum
ROW_BYTES = COLUMNS * 8


class Copies:
    """The images of a split, in its order, their shorter side at most `side` pixels."""

    def __init__(self, folder: Path, paths: Sequence[Path], side: int):
        self.folder, self.paths, self.side = folder, paths, side
        self.index = np.fromfile(folder / "index", np.int64, count=len(paths) * COLUMNS).reshape(-1, COLUMNS)
        self.pixels = np.memmap(folder / "pixels", dtype=np.uint8, mode="r")

    def read(self, number: int) -> Image.Image:
        """The copy of an image; one that is not as it was written is made again from the image."""
        offset, height, width, checksum = self.index[number].tolist()
        pixels = self.pixels[offset : offset + 3 * height * width].reshape(height, width, 3)
        if _checksum(pixels) != checksum:
            pixels = np.asarray(_shrink(self.paths[number], self.side))
            self._replace(number, pixels)
        return Image.fromarray(pixels)

    def _replace(self, number: int, pixels: np.ndarray) -> None:
        """Write a copy over a changed one. Somebody else's folder may be closed to us: then it stays as it is."""
        row = _row(int(self.index[number, 0]), pixels)
        with suppress(OSError):
            _overwrite(self.folder / "pixels", row[0], pixels.tobytes())
            _overwrite(self.folder / "index", number * ROW_BYTES, _rows([row]))


def _overwrite(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


def _checksum(pixels: np.ndarray) -> int:
    """Of the shape and the values of an image."""
    return zlib.crc32(np.ascontiguousarray(pixels).data, zlib.crc32(str(pixels.shape).encode()))


def _row(offset: int, pixels: np.ndarray) -> tuple[int, int, int, int]:
    """The entry of an image in the index."""
    return offset, pixels.shape[0], pixels.shape[1], _checksum(pixels)


def _rows(rows: Sequence[tuple[int, int, int, int]]) -> bytes:
    return np.array(rows, dtype=np.int64).tobytes()


def with_copies(dataset: Dataset, side: int, parent: Path, workers: int, progress: Progress) -> Dataset:
    """The same dataset, read from copies in a folder within `parent`; what is not there yet is made."""

    def copied(split: Split, part: str) -> Split:
        if not isinstance(split.images, FileImages):
            raise UserError(f"data.cache keeps copies of image files, and {dataset.name} has none: leave it out.")
        copies = _copies(split.images.paths, side, parent, workers, lambda *n: progress(f"copying {part} images", *n))
        return replace(split, images=replace(split.images, copies=copies))

    return replace(dataset, train=copied(dataset.train, "training"), test=copied(dataset.test, "test"))


def _copies(paths: Sequence[Path], side: int, parent: Path, workers: int, progress: _Count) -> Copies:
    folder = parent / f"{_fingerprint(paths, side)}-{side}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _whole_ones(folder)[0] < len(paths):
            with FileLock(folder / "lock"):  # another process may be at it; the system frees the lock of a dead one
                _complete(folder, paths, side, workers, progress)
    except OSError as error:
        raise UserError(
            f"Copies of the images cannot be kept in {folder}: {error.strerror or error}. Make room, name another "
            "place in the variable XDG_CACHE_HOME, or leave out data.cache."
        ) from error
    return Copies(folder, paths, side)


def _complete(folder: Path, paths: Sequence[Path], side: int, workers: int, progress: _Count) -> None:
    done, end = _whole_ones(folder)
    if done == len(paths):  # by the process that had the lock before
        return
    for name, size in (("pixels", end), ("index", done * ROW_BYTES)):
        with (folder / name).open("ab") as file:
            file.truncate(size)  # what a killed process wrote of another image is cut off
    _check_room(folder, len(paths) - done, side)
    _append(folder, paths, done, side, workers, progress)


def _whole_ones(folder: Path) -> tuple[int, int]:
    """How many images are there from the first one on, one after another, and where the last of them ends."""
    if not ((folder / "index").exists() and (folder / "pixels").exists()):
        return 0, 0
    size = (folder / "pixels").stat().st_size
    index = np.fromfile(folder / "index", dtype=np.int64)
    index = index[: len(index) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)
    lengths = 3 * index[:, 1] * index[:, 2]
    ends = np.cumsum(lengths)
    whole = (lengths > 0) & (index[:, 0] == ends - lengths) & (ends <= size)
    count = len(whole) if whole.all() else int(whole.argmin())
    return count, int(ends[count - 1]) if count else 0


def _fingerprint(paths: Sequence[Path], side: int) -> str:
    """Of names, sizes, times of change and the bytes at both ends: a file that is changed gets a new copy."""
    digest = hashlib.sha256(f"{FORMAT} {side}".encode())
    for path in paths:
        try:
            found, content = path.stat(), first_and_last_bytes(path)
        except OSError as error:
            raise UserError(f"The image {path} cannot be read: {error.strerror or error}.") from error
        digest.update(f"{path.resolve()} {found.st_size} {found.st_mtime_ns}\n".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:24]


def _check_room(folder: Path, images: int, side: int) -> None:
    needed, free = 4 * images * side * side, shutil.disk_usage(folder).free  # 3 bytes a pixel, and a third more pixels
    if needed > free:
        raise UserError(
            f"Copies of {images:,} images with {side} pixels a side take about {needed / 1e9:,.1f} GB, and {folder} "
            f"has room for {free / 1e9:,.1f}: make room, name another place in the variable XDG_CACHE_HOME, or leave "
            "out data.cache."
        )


def _append(folder: Path, paths: Sequence[Path], done: int, side: int, workers: int, progress: _Count) -> None:
    def shrunk(path: Path) -> np.ndarray:
        return np.asarray(_shrink(path, side))

    with (
        ThreadPoolExecutor(workers) as pool,
        (folder / "pixels").open("ab") as pixels,
        (folder / "index").open("ab") as index,
    ):
        for start in range(done, len(paths), TOGETHER):
            rows = []
            for image in pool.map(shrunk, paths[start : start + TOGETHER]):
                rows.append(_row(pixels.tell(), image))
                pixels.write(image.data)
                progress(start + len(rows), len(paths))
            for file, content in ((pixels, b""), (index, _rows(rows))):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())


def _shrink(path: Path, side: int) -> Image.Image:
    image, (width, height) = read_reduced(path, lambda *size: min(size) / side)
    short = min(width, height)
    if short <= side:
        return image
    size = (max(side, round(width * side / short)), max(side, round(height * side / short)))
    return image.resize(size, Image.Resampling.BILINEAR)
