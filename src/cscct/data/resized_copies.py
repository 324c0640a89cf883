"""Resized copies of image files on disk, so that files are decoded only once.

Each set of files and each size has a folder, named by a fingerprint of both. `pixels` contains the images as uint8
values, `index` the offset, height, width and checksum of each image. Both files are only appended to, pixels first, so
the next process continues where a killed process stopped. The checksum is verified when an image is read; a copy that
has changed on disk is created again.
"""

from __future__ import annotations

import hashlib
import os
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
from ..storage import check_free_space
from .base import Dataset, FileImages, Split, first_and_last_bytes
from .image_files import read_reduced
from .registry import Progress

FORMAT = "2"  # version of the files, part of the fingerprint
_Count = Callable[[int, int], None]  # images done, total
IMAGES_PER_SYNC = 256  # images between two calls of fsync
COLUMNS = 4  # columns of the index: offset, height, width, checksum
ROW_BYTES = COLUMNS * 8


class ResizedCopies:
    """Resized copies of the images of a split.

    Args:
        folder: Folder with complete copies.
        paths: Image files of the split.
        side: Maximum length of the shorter side in pixels.
    """

    def __init__(self, folder: Path, paths: Sequence[Path], side: int):
        self.folder, self.paths, self.side = folder, paths, side
        self.index = np.fromfile(folder / "index", np.int64, count=len(paths) * COLUMNS).reshape(-1, COLUMNS)
        self.pixels = np.memmap(folder / "pixels", dtype=np.uint8, mode="r")

    def read(self, index: int) -> Image.Image:
        """Return the copy of an image. A damaged copy is created again from the image file.

        Args:
            index: Index of the image in the split.

        Raises:
            UserError: If the image file must be read again and cannot be read.
        """
        offset, height, width, checksum = self.index[index].tolist()
        pixels = self.pixels[offset : offset + 3 * height * width].reshape(height, width, 3)
        if _checksum(pixels) != checksum:
            pixels = np.asarray(_shrink(self.paths[index], self.side))
            self._replace(index, pixels)
        return Image.fromarray(pixels)

    def _replace(self, index: int, pixels: np.ndarray) -> None:
        """Overwrite a damaged copy, if the folder is writable."""
        row = _row(int(self.index[index, 0]), pixels)
        with suppress(OSError):
            _overwrite(self.folder / "pixels", row[0], pixels.tobytes())
            _overwrite(self.folder / "index", index * ROW_BYTES, _rows([row]))


def _overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def _checksum(pixels: np.ndarray) -> int:
    """Return the checksum of the shape and the pixels of an image."""
    return zlib.crc32(np.ascontiguousarray(pixels).data, zlib.crc32(str(pixels.shape).encode()))


def _row(offset: int, pixels: np.ndarray) -> tuple[int, int, int, int]:
    """Return the index entry of an image."""
    return offset, pixels.shape[0], pixels.shape[1], _checksum(pixels)


def _rows(rows: Sequence[tuple[int, int, int, int]]) -> bytes:
    return np.array(rows, dtype=np.int64).tobytes()


def with_resized_copies(dataset: Dataset, side: int, parent: Path, workers: int, progress: Progress) -> Dataset:
    """Return a dataset that reads resized copies of its image files. Missing copies are created.

    Args:
        dataset: Dataset of image files.
        side: Maximum length of the shorter side of the copies in pixels.
        parent: Folder with the copies of all datasets.
        workers: Threads that decode files.
        progress: Called with a description, the number of images done and the total.

    Raises:
        UserError: If the images are not files, a file cannot be read, or the copies cannot be written.
    """

    def copied(split: Split, split_name: str) -> Split:
        if not isinstance(split.images, FileImages):
            raise UserError(
                f"data.resize_cache_px needs image files, but the images of {dataset.name} are in memory: omit it."
            )
        copies = _copies(
            split.images.paths, side, parent, workers, lambda *n: progress(f"copying {split_name} images", *n)
        )
        return replace(split, images=replace(split.images, copies=copies))

    return replace(dataset, train=copied(dataset.train, "training"), test=copied(dataset.test, "test"))


def _copies(paths: Sequence[Path], side: int, parent: Path, workers: int, progress: _Count) -> ResizedCopies:
    folder = parent / f"{_fingerprint(paths, side)}-{side}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _complete_images(folder)[0] < len(paths):
            with FileLock(folder / "lock"):  # released by the system if the process is killed
                _complete(folder, paths, side, workers, progress)
    except OSError as error:
        raise UserError(
            f"Copies of the images cannot be stored in {folder}: {error.strerror or error}. Free some space, set the "
            "environment variable XDG_CACHE_HOME to another folder, or omit data.resize_cache_px."
        ) from error
    return ResizedCopies(folder, paths, side)


def _complete(folder: Path, paths: Sequence[Path], side: int, workers: int, progress: _Count) -> None:
    done, end = _complete_images(folder)
    if done == len(paths):  # completed by the previous owner of the lock
        return
    for name, size in (("pixels", end), ("index", done * ROW_BYTES)):
        with (folder / name).open("ab") as file:
            file.truncate(size)  # what a killed process wrote of another image is cut off
    left = len(paths) - done
    check_free_space(
        folder,
        4 * left * side * side,  # three bytes per pixel, and a third more pixels where images are not square
        f"Copies of {left:,} images with {side} pixels a side",
        "free some space, set the variable XDG_CACHE_HOME to another folder, or omit data.resize_cache_px",
    )
    _append(folder, paths, done, side, workers, progress)


def _complete_images(folder: Path) -> tuple[int, int]:
    """Return the number of complete images from the first one on, and the end of the last one in bytes."""
    if not ((folder / "index").exists() and (folder / "pixels").exists()):
        return 0, 0
    size = (folder / "pixels").stat().st_size
    index = np.fromfile(folder / "index", dtype=np.int64)
    index = index[: len(index) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)
    lengths = 3 * index[:, 1] * index[:, 2]
    ends = np.cumsum(lengths)
    complete = (lengths > 0) & (index[:, 0] == ends - lengths) & (ends <= size)
    count = len(complete) if complete.all() else int(complete.argmin())
    return count, int(ends[count - 1]) if count else 0


def _fingerprint(paths: Sequence[Path], side: int) -> str:
    """Return a hash of the names, sizes, modification times and first and last bytes of files."""
    digest = hashlib.sha256(f"{FORMAT} {side}".encode())
    for path in paths:
        try:
            stat, content = path.stat(), first_and_last_bytes(path)
        except OSError as error:
            raise UserError(f"The image {path} cannot be read: {error.strerror or error}.") from error
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:24]


def _append(folder: Path, paths: Sequence[Path], done: int, side: int, workers: int, progress: _Count) -> None:
    def shrink(path: Path) -> np.ndarray:
        return np.asarray(_shrink(path, side))

    with (
        ThreadPoolExecutor(workers) as pool,
        (folder / "pixels").open("ab") as pixels,
        (folder / "index").open("ab") as index,
    ):
        for start in range(done, len(paths), IMAGES_PER_SYNC):
            rows = []
            for image in pool.map(shrink, paths[start : start + IMAGES_PER_SYNC]):
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
