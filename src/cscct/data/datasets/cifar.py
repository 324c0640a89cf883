"""CIFAR-100 from its published files, which are Python pickles.

Unpickling can execute arbitrary code. The files are read with `SafeUnpickler`, which builds only plain values and
numeric arrays.
"""

from __future__ import annotations

import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import torch

from ...errors import UserError
from ..base import ArrayImages, Dataset, Split
from ..registry import LoadRequest, listing, locate
from .unpickle import HashingReader, PlainArray, Refused, SafeUnpickler, text_of

FOLDER = "cifar-100-python"
ARCHIVE = FOLDER + ".tar.gz"
CLEAN_COPY = "delete it and get a clean copy with `cscct data fetch cifar100`"


@dataclass(frozen=True)
class _Layout:
    """Expected content of the files."""

    classes: int
    per_class: dict[str, int]  # images per class in each file
    md5: dict[str, str]


_LAYOUT = _Layout(  # tests replace it by a smaller layout
    classes=100,
    per_class={"train": 500, "test": 100},
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
_FILES = ("train", "test", "meta")


def load_cifar100(request: LoadRequest) -> Dataset:
    """Load CIFAR-100 from the extracted folder, or from the archive if files are missing.

    Args:
        request: Options of the loader.

    Raises:
        UserError: If the files are missing or damaged.
    """
    places = locate(request.data_dir, FOLDER)
    if folder := find_extracted(places):
        return load_extracted(folder, request)
    for place in places:
        if (place / ARCHIVE).is_file():
            return load_archive(place / ARCHIVE, request)
    same = " (with the same --data-dir)" if request.data_dir else ""
    raise UserError(
        f"CIFAR-100 was not found: neither {ARCHIVE} nor a folder with the files train, test and meta is in "
        f"{' or '.join(map(str, places))}. Get it with `cscct data fetch cifar100`{same}, "
        "or set --data-dir to the folder that contains it."
    )


def find_extracted(places: list[Path]) -> Path | None:
    """Return the first folder that contains all files, or None."""
    return next((p for p in places if all((p / name).is_file() for name in _FILES)), None)


def load_extracted(folder: Path, request: LoadRequest) -> Dataset:
    """Load CIFAR-100 from a folder with the extracted files.

    Args:
        folder: Folder with the files train, test and meta.
        request: Options of the loader.

    Raises:
        UserError: If a file is damaged.
    """
    builder = _Builder()
    for name in _FILES:
        origin = str(folder / name)
        try:
            with open(folder / name, "rb") as file:
                builder.add(name, file, origin)
        except OSError as error:
            raise UserError(f"{origin} cannot be read: {error.strerror or error}.") from error
    return builder.finish(str(folder), request)


def load_archive(path: Path, request: LoadRequest) -> Dataset:
    """Load CIFAR-100 from the archive in one pass. Nothing is extracted to disk.

    Args:
        path: Archive.
        request: Options of the loader.

    Raises:
        UserError: If the archive is damaged or incomplete.
    """
    builder = _Builder()
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                wanted = name in _FILES and PurePosixPath(folder).name == FOLDER and name not in builder.seen
                if wanted and member.isfile() and (file := archive.extractfile(member)):
                    builder.add(name, file, f"{name} in {path}")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path} is broken or incomplete ({error}): {CLEAN_COPY}.") from error
    missing = [name for name in _FILES if name not in builder.seen]
    if missing:
        raise UserError(f"{path} does not contain {listing([f'{FOLDER}/{n}' for n in missing])}: {CLEAN_COPY}.")
    return builder.finish(str(path), request)


class _Builder:
    """Collects the content of the files one at a time, because the dataset takes 184 MB of memory."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._splits: dict[str, Split] = {}
        self._names: tuple[str, ...] = ()
        self._differing: dict[str, str] = {}  # file name -> md5

    def add(self, name: str, file: IO[bytes], origin: str) -> None:
        content, md5 = _read_pickle(file, origin)
        if name == "meta":
            self._names = _class_names(content, origin)
        else:
            self._splits[name] = _split(content, _LAYOUT.per_class[name], origin)
        if md5 != _LAYOUT.md5[name]:
            self._differing[name] = md5
        self.seen.add(name)

    def finish(self, origin: str, request: LoadRequest) -> Dataset:
        if self._differing:
            hashes = [f"md5 of {name}: {md5}, published: {_LAYOUT.md5[name]}" for name, md5 in self._differing.items()]
            request.warn(
                f"The checksum of {listing(list(self._differing))} in {origin} is not that of the published CIFAR-100 "
                f"({'; '.join(hashes)}). The layout and the number of images per class are correct, but pixels, labels "
                "or names may differ. For the published files, delete these and run `cscct data fetch cifar100`."
            )
        return Dataset("cifar100", self._names, self._splits["train"], self._splits["test"], channels=3)


def _split(content: dict[str, Any], per_class: int, origin: str) -> Split:
    pixels, labels = content.get("data"), content.get("fine_labels")
    count = _LAYOUT.classes * per_class
    if not isinstance(pixels, PlainArray):
        raise _wrong(origin, "it has no array of pixels called 'data'")
    array = pixels.values
    if array.dtype != np.uint8 or array.shape != (count, 3072):
        raise _wrong(origin, f"its pixels are {array.dtype} {array.shape} instead of uint8 ({count}, 3072)")
    if isinstance(labels, PlainArray):
        labels = labels.values.tolist()
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise _wrong(origin, "it has no list of integers called 'fine_labels'")
    if len(labels) != count:
        raise _wrong(origin, f"it has {len(labels)} labels for {count} images")
    if not all(0 <= label < _LAYOUT.classes for label in labels):
        raise _wrong(origin, f"it has labels outside 0 to {_LAYOUT.classes - 1}")
    indices = np.array(labels, dtype=np.int64)
    counts = np.bincount(indices, minlength=_LAYOUT.classes)
    for label in np.flatnonzero(counts != per_class)[:1]:
        raise _wrong(origin, f"class {label} has {counts[label]} images instead of {per_class}")
    if not (array.flags.writeable and array.flags.c_contiguous):  # required by torch.from_numpy
        array = array.copy(order="C")
    return Split(ArrayImages(torch.from_numpy(array).view(count, 3, 32, 32)), indices)


def _class_names(content: dict[str, Any], origin: str) -> tuple[str, ...]:
    names = content.get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(name, (str, bytes)) and name for name in names):
        raise _wrong(origin, "it has no list of names called 'fine_label_names'")
    texts = tuple(text_of(name) for name in names)
    if len(texts) != _LAYOUT.classes or len(set(texts)) != len(texts):
        raise _wrong(origin, f"it has {len(set(texts))} different class names instead of {_LAYOUT.classes}")
    return texts


def _wrong(origin: str, problem: str) -> UserError:
    return UserError(f"{origin} does not contain CIFAR-100: {problem}; {CLEAN_COPY}.")


def _read_pickle(file: IO[bytes], origin: str) -> tuple[dict[str, Any], str]:
    """Return the dictionary in a file, with text keys, and the md5 of the file."""
    reader = HashingReader(file)
    try:
        content = SafeUnpickler(reader, encoding="bytes").load()
        reader.drain()
    except Refused as refusal:
        raise UserError(f"{origin} {refusal} and is refused; {CLEAN_COPY}.") from refusal
    except Exception as error:  # a damaged pickle can raise any error
        reason = str(error) or type(error).__name__
        raise UserError(f"{origin} is broken or incomplete ({reason}): {CLEAN_COPY}.") from error
    if not isinstance(content, dict):
        raise _wrong(origin, "it is not a dictionary")
    return {text_of(k): v for k, v in content.items() if isinstance(k, (str, bytes))}, reader.md5.hexdigest()
