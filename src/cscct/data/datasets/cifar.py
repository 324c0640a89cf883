"""CIFAR-10 and CIFAR-100 from their published files, which are Python pickles.

Unpickling can execute arbitrary code. The files are read with `SafeUnpickler`, which builds only plain values and
numeric arrays.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import UserError
from ..base import ArrayImages, Dataset, Split
from ..registry import LoadRequest, listing, locate
from .unpickle import HashingReader, PlainArray, Refused, SafeUnpickler, text_of


@dataclass(frozen=True)
class _Layout:
    """Names and expected content of the files. The defaults are those of CIFAR-100."""

    classes: int
    per_class: Mapping[str, int]  # images per class in each part
    md5: dict[str, str]
    name: str = "cifar100"
    title: str = "CIFAR-100"
    folder: str = "cifar-100-python"
    archive: str = "cifar-100-python.tar.gz"
    archive_md5: str = "eb9058c3a382ffc7106e4002c42a8d85"
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"train": ("train",), "test": ("test",)})
    meta: str = "meta"
    labels_key: str = "fine_labels"
    names_key: str = "fine_label_names"

    @property
    def files(self) -> tuple[str, ...]:
        return (*(name for names in self.parts.values() for name in names), self.meta)

    @property
    def clean_copy(self) -> str:
        return f"delete it and get a clean copy with `cscct data fetch {self.name}`"

    def wrong(self, origin: str, problem: str) -> UserError:
        return UserError(f"{origin} does not contain {self.title}: {problem}; {self.clean_copy}.")


CIFAR100 = _Layout(  # tests replace it by a smaller layout
    classes=100,
    per_class={"train": 500, "test": 100},
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
CIFAR10 = _Layout(
    classes=10,
    per_class={"train": 5000, "test": 1000},
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3d95e74349a",
    parts={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
)


def layout_of(name: str) -> _Layout:
    """Return the layout of `cifar10` or `cifar100`."""
    return {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]


def load_cifar10(request: LoadRequest) -> Dataset:
    """Load CIFAR-10 from the extracted folder, or from the archive if files are missing.

    Args:
        request: Options of the loader.

    Raises:
        UserError: If the files are missing or damaged.
    """
    return _load(CIFAR10, request)


def load_cifar100(request: LoadRequest) -> Dataset:
    """Load CIFAR-100 from the extracted folder, or from the archive if files are missing.

    Args:
        request: Options of the loader.

    Raises:
        UserError: If the files are missing or damaged.
    """
    return _load(CIFAR100, request)


def _load(layout: _Layout, request: LoadRequest) -> Dataset:
    places = locate(request.data_dir, layout.folder)
    if folder := find_extracted(places, layout):
        return load_extracted(folder, request, layout)
    for place in places:
        if (place / layout.archive).is_file():
            return load_archive(place / layout.archive, request, layout)
    same = " (with the same --data-dir)" if request.data_dir else ""
    names = ", ".join(layout.files[:-1]) + f" and {layout.files[-1]}"
    raise UserError(
        f"{layout.title} was not found: neither {layout.archive} nor a folder with the files {names} is in "
        f"{' or '.join(map(str, places))}. Get it with `cscct data fetch {layout.name}`{same}, "
        "or set --data-dir to the folder that contains it."
    )


def find_extracted(places: list[Path], layout: _Layout) -> Path | None:
    """Return the first folder that contains all files, or None."""
    return next((p for p in places if all((p / name).is_file() for name in layout.files)), None)


def load_extracted(folder: Path, request: LoadRequest, layout: _Layout) -> Dataset:
    """Load a dataset from a folder with the extracted files.

    Args:
        folder: Folder with the files.
        request: Options of the loader.
        layout: `CIFAR10` or `CIFAR100`.

    Raises:
        UserError: If a file is damaged.
    """
    builder = _Builder(layout)
    for name in layout.files:
        origin = str(folder / name)
        try:
            with open(folder / name, "rb") as file:
                builder.add(name, file, origin)
        except OSError as error:
            raise UserError(f"{origin} cannot be read: {error.strerror or error}.") from error
    return builder.finish(str(folder), request)


def load_archive(path: Path, request: LoadRequest, layout: _Layout) -> Dataset:
    """Load a dataset from the archive in one pass. Nothing is extracted to disk.

    Args:
        path: Archive.
        request: Options of the loader.
        layout: `CIFAR10` or `CIFAR100`.

    Raises:
        UserError: If the archive is damaged or incomplete.
    """
    builder = _Builder(layout)
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                inside = PurePosixPath(folder).name == layout.folder
                wanted = name in layout.files and inside and name not in builder.seen
                if wanted and member.isfile() and (file := archive.extractfile(member)):
                    builder.add(name, file, f"{name} in {path}")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path} is broken or incomplete ({error}): {layout.clean_copy}.") from error
    missing = [f"{layout.folder}/{name}" for name in layout.files if name not in builder.seen]
    if missing:
        raise UserError(f"{path} does not contain {listing(missing)}: {layout.clean_copy}.")
    return builder.finish(str(path), request)


class _Builder:
    """Collects the content of the files one at a time, because the dataset takes 184 MB of memory."""

    def __init__(self, layout: _Layout) -> None:
        self.layout = layout
        self.seen: set[str] = set()
        self._pixels: dict[str, NDArray[np.uint8]] = {}  # part -> (images, 3072)
        self._labels: dict[str, NDArray[np.int64]] = {}
        self._names: tuple[str, ...] = ()
        self._differing: dict[str, str] = {}  # file name -> md5

    def add(self, name: str, file: IO[bytes], origin: str) -> None:
        layout = self.layout
        content, md5 = _read_pickle(file, origin, layout)
        if name == layout.meta:
            self._names = _class_names(content, origin, layout)
        else:
            part, files = next((part, files) for part, files in layout.parts.items() if name in files)
            self._add_images(part, files.index(name), len(files), _images(content, origin, layout, part))
        if md5 != layout.md5[name]:
            self._differing[name] = md5
        self.seen.add(name)

    def _add_images(
        self, part: str, place: int, files: int, images: tuple[NDArray[np.uint8], NDArray[np.int64]]
    ) -> None:
        pixels, labels = images
        if files == 1:  # without a copy
            self._pixels[part], self._labels[part] = pixels, labels
            return
        rows = slice(place * len(pixels), (place + 1) * len(pixels))
        self._pixels.setdefault(part, np.empty((files * len(pixels), 3072), np.uint8))[rows] = pixels
        self._labels.setdefault(part, np.empty(files * len(labels), np.int64))[rows] = labels

    def finish(self, origin: str, request: LoadRequest) -> Dataset:
        layout = self.layout
        splits = {part: self._split(part, origin) for part in layout.parts}
        if self._differing:
            hashes = [f"md5 of {name}: {md5}, published: {layout.md5[name]}" for name, md5 in self._differing.items()]
            request.warn(
                f"The checksum of {listing(list(self._differing))} in {origin} is not that of the published "
                f"{layout.title} ({'; '.join(hashes)}). The layout and the number of images per class are correct, but "
                "pixels, labels or names may differ. For the published files, delete these and run "
                f"`cscct data fetch {layout.name}`."
            )
        return Dataset(layout.name, self._names, splits["train"], splits["test"], channels=3)

    def _split(self, part: str, origin: str) -> Split:
        array, labels, per_class = self._pixels[part], self._labels[part], self.layout.per_class[part]
        counts = np.bincount(labels, minlength=self.layout.classes)
        for label in np.flatnonzero(counts != per_class)[:1]:
            problem = f"class {label} has {counts[label]} images instead of {per_class}"
            raise self.layout.wrong(f"{' to '.join(self._ends(part))} in {origin}", problem)
        if not (array.flags.writeable and array.flags.c_contiguous):  # required by torch.from_numpy
            array = array.copy(order="C")
        return Split(ArrayImages(torch.from_numpy(array).view(len(array), 3, 32, 32)), labels)

    def _ends(self, part: str) -> list[str]:
        files = self.layout.parts[part]
        return list(dict.fromkeys((files[0], files[-1])))


def _images(
    content: dict[str, Any], origin: str, layout: _Layout, part: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (images, 3072) and labels of a file."""
    pixels, labels = content.get("data"), content.get(layout.labels_key)
    count = layout.classes * layout.per_class[part] // len(layout.parts[part])
    if not isinstance(pixels, PlainArray):
        raise layout.wrong(origin, "it has no array of pixels called 'data'")
    array = pixels.values
    if array.dtype != np.uint8 or array.shape != (count, 3072):
        raise layout.wrong(origin, f"its pixels are {array.dtype} {array.shape} instead of uint8 ({count}, 3072)")
    if isinstance(labels, PlainArray):
        labels = labels.values.tolist()
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise layout.wrong(origin, f"it has no list of integers called '{layout.labels_key}'")
    if len(labels) != count:
        raise layout.wrong(origin, f"it has {len(labels)} labels for {count} images")
    if not all(0 <= label < layout.classes for label in labels):
        raise layout.wrong(origin, f"it has labels outside 0 to {layout.classes - 1}")
    return array, np.array(labels, dtype=np.int64)


def _class_names(content: dict[str, Any], origin: str, layout: _Layout) -> tuple[str, ...]:
    names = content.get(layout.names_key)
    if not isinstance(names, list) or not all(isinstance(name, (str, bytes)) and name for name in names):
        raise layout.wrong(origin, f"it has no list of names called '{layout.names_key}'")
    texts = tuple(text_of(name) for name in names)
    if len(texts) != layout.classes or len(set(texts)) != len(texts):
        raise layout.wrong(origin, f"it has {len(set(texts))} different class names instead of {layout.classes}")
    return texts


def _read_pickle(file: IO[bytes], origin: str, layout: _Layout) -> tuple[dict[str, Any], str]:
    """Return the dictionary in a file, with text keys, and the md5 of the file."""
    reader = HashingReader(file)
    try:
        content = SafeUnpickler(reader, encoding="bytes").load()
        reader.drain()
    except Refused as refusal:
        raise UserError(f"{origin} {refusal} and is refused; {layout.clean_copy}.") from refusal
    except Exception as error:  # a damaged pickle can raise any error
        reason = str(error) or type(error).__name__
        raise UserError(f"{origin} is broken or incomplete ({reason}): {layout.clean_copy}.") from error
    if not isinstance(content, dict):
        raise layout.wrong(origin, "it is not a dictionary")
    return {text_of(k): v for k, v in content.items() if isinstance(k, (str, bytes))}, reader.md5.hexdigest()
