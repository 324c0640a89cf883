"""Images in one folder per class: a user's own, and the 100 classes of ImageNet that the paper uses.

Every file is accounted for. Files that are not images (Thumbs.db, notes.txt) are left out with a warning; damaged
images are refused before training, or left out when the user asks for that.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import UserError
from ..base import Dataset, FileImages, Split
from ..image_files import SUFFIXES, fault_at_a_glance, fault_in_full, looks_like_image
from ..registry import LoadRequest, listing, locate

_NOT_AN_IMAGE = "not an image file"
_SUBSET_NAMES = ("imagenet-subset", "imagenet100", "imagenet")


class _File(NamedTuple):
    path: Path
    label: int


def load_folder(request: LoadRequest) -> Dataset:
    """DIR/train and DIR/test (or val); without a test folder, part of each class is set aside."""
    root = _folder_root(request)
    train_dir, test_dir = _parts(root)
    classes = _classes_in(train_dir)
    if test_dir is not None:
        unknown = [name for name in _class_folders(test_dir) if name not in classes]
        if unknown:
            raise UserError(
                f"{test_dir} has classes that {train_dir} does not have: {listing(unknown)}. "
                "Add training images for them or remove them."
            )
    train = _files(train_dir, classes)
    test = _files(test_dir, classes) if test_dir else []
    loose = _loose_images(train_dir) + (_loose_images(test_dir) if test_dir else [])

    faults = dict.fromkeys(loose, "in no class folder") | _faults(
        [f.path for f in train + test], fault_in_full, request
    )
    _refuse_or_warn(root, faults, len(train) + len(test) + len(loose), request)
    train, test = _without(train, faults, classes, train_dir), _without(test, faults, classes, test_dir)
    if test_dir is None:
        train, test = _set_aside(train, classes, request)
    return Dataset("folder", classes, _split(train), _split(test), channels=3)


def folder_classes(request: LoadRequest) -> tuple[str, ...]:
    """The classes of a folder of images, without reading the images."""
    return _classes_in(_parts(_folder_root(request))[0])


def _parts(root: Path) -> tuple[Path, Path | None]:
    """The folders with training and with test images."""
    train_dir = root / "train"
    test_dir = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if train_dir.is_dir():
        return train_dir, test_dir
    if test_dir is not None:
        raise UserError(f"{root} has a folder {test_dir.name!r} but no folder 'train': add it, or rename it.")
    return root, None


def _classes_in(train_dir: Path) -> tuple[str, ...]:
    classes = tuple(_class_folders(train_dir))
    if len(classes) < 2:
        raise UserError(
            f"{train_dir} has {len(classes)} class folder{'' if len(classes) == 1 else 's'}: at least two are needed, "
            "each with the images of one class."
        )
    return classes


def load_imagenet_subset(request: LoadRequest) -> Dataset:
    """Labels are ranks in the sorted list. Only headers and ends of files are read: decoding 126,000 images
    would take many minutes before the first step of training."""
    places = locate(request.data_dir, *_SUBSET_NAMES)
    root = next((p for p in places if (p / "train").is_dir() and (p / "val").is_dir()), None)
    if root is None:
        raise UserError(
            f"ImageNet-Subset was not found in {places[0]} (nor in {', '.join(_SUBSET_NAMES)} there). "
            "It cannot be fetched, for its licence does not allow that: get ILSVRC 2012 from image-net.org, "
            "lay it out as DIR/train/n01440764/*.JPEG and DIR/val/n01440764/*.JPEG, one folder per class, "
            "and try `cscct data check imagenet-subset --data-dir DIR`."
        )
    classes = subset_wnids()
    missing = [f"{part}/{c}" for part in ("train", "val") for c in classes if not (root / part / c).is_dir()]
    if missing:
        raise UserError(
            f"{root} lacks {len(missing)} of the {2 * len(classes)} class folders of ImageNet-Subset, the "
            f"first is {missing[0]}. Add them, then try `cscct data check imagenet-subset --data-dir {root}`."
        )
    train, test = _files(root / "train", classes), _files(root / "val", classes)
    faults = _faults([f.path for f in train + test], fault_at_a_glance, request)
    _refuse_or_warn(root, faults, len(train) + len(test), request)
    train = _without(train, faults, classes, root / "train")
    test = _without(test, faults, classes, root / "val")
    return Dataset("imagenet-subset", classes, _split(train), _split(test), channels=3)


def subset_wnids() -> tuple[str, ...]:
    text = Path(__file__).with_name("imagenet_subset_wnids.txt").read_text(encoding="ascii")
    return tuple(sorted(text.split()))


def _folder_root(request: LoadRequest) -> Path:
    if request.data_dir is None and not os.environ.get("CSCCT_DATA"):
        raise UserError("The dataset 'folder' needs the folder of your images: name it with --data-dir.")
    root = locate(request.data_dir)[0]
    if not root.is_dir():
        raise UserError(f"{root} is not a folder: name the folder of your images with --data-dir.")
    return root


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, in the order of names. Names are recorded as text, so they have to be text."""
    try:
        found = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error
    for path in found:
        try:
            path.name.encode()
        except UnicodeEncodeError:
            escaped = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise UserError(
                f"The name of {escaped} is not valid UTF-8, so it cannot be recorded: rename it. If other programs "
                "show the name rightly, set PYTHONUTF8=1."
            ) from None
    return found


def _class_folders(folder: Path) -> list[str]:
    return [path.name for path in _visible(folder) if path.is_dir()]


def _loose_images(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and not path.is_dir()]


def _files(split_dir: Path, classes: Sequence[str]) -> list[_File]:
    """Everything in the class folders. A class without a folder is left to the check after loading."""
    files: list[_File] = []
    for label, name in enumerate(classes):
        if (split_dir / name).is_dir():
            found = _visible(split_dir / name)
            if not found:
                raise UserError(f"The class folder {split_dir / name} is empty: add images or remove it.")
            files += [_File(path, label) for path in found]
    return files


def _faults(paths: list[Path], fault: Callable[[Path], str | None], request: LoadRequest) -> dict[Path, str]:
    """What is wrong with each file that has something wrong. Pillow lets go of the GIL while it decodes."""

    def examine(path: Path) -> str | None:
        try:
            if not path.is_file() and path.exists():  # opening a pipe would wait for somebody to write to it
                return "a folder inside a class folder" if path.is_dir() else "not a regular file"
        except OSError as error:
            return error.strerror
        if not looks_like_image(path):
            return _NOT_AN_IMAGE
        if path.suffix.lower() not in SUFFIXES:
            return "an image without the suffix of one"
        return fault(path)

    with warnings.catch_warnings(), ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files
        found = {}
        try:
            for number, (path, what) in enumerate(zip(paths, pool.map(examine, paths), strict=True)):
                request.progress("checking images", number + 1, len(paths))
                if what:
                    found[path] = what
        finally:  # where it is broken off, the pool would look at the rest before it lets go
            pool.shutdown(cancel_futures=True)
        return found


def _refuse_or_warn(root: Path, faults: dict[Path, str], total: int, request: LoadRequest) -> None:
    """Damaged images are refused, or left out if the user says so; files that are no images are always left out."""
    others = [str(path.relative_to(root)) for path, why in faults.items() if why == _NOT_AN_IMAGE]
    damaged = [f"{path.relative_to(root)} ({why})" for path, why in faults.items() if why != _NOT_AN_IMAGE]
    found = f"{len(damaged)} of {total - len(others)} files in {root} cannot be read as images: {listing(damaged)}"
    if damaged and not request.skip_bad_images:
        raise UserError(f"{found}; remove them or pass --skip-bad-images.")
    if others:
        what = "1 file that is not an image is" if len(others) == 1 else f"{len(others)} files that are not images are"
        request.warn(f"{what} ignored in {root}: {listing(others)}.")
    if damaged:
        request.warn(f"{found}; they are skipped.")


def _without(
    files: list[_File], faults: dict[Path, str], classes: Sequence[str], split_dir: Path | None
) -> list[_File]:
    kept = [file for file in files if file.path not in faults]
    lost = sorted({file.label for file in files} - {file.label for file in kept})
    if lost:
        raise UserError(
            f"No readable image is left in {split_dir} for {listing([classes[label] for label in lost])}: "
            "add images or remove the class."
        )
    return kept


def _set_aside(files: list[_File], classes: Sequence[str], request: LoadRequest) -> tuple[list[_File], list[_File]]:
    """Some images of each class for testing. The draw depends on the seed and the class name alone, so a new
    class leaves the test images of the others as they were."""
    if not 0 < request.test_fraction < 1:
        raise UserError(f"The test fraction must lie between 0 and 1, and it is {request.test_fraction}.")
    train: list[_File] = []
    test: list[_File] = []
    for label, name in enumerate(classes):
        mine = [file for file in files if file.label == label]
        if len(mine) < 2:
            raise UserError(
                f"Class {name} has one image, but two are needed to set one aside for testing: add images, "
                "or put test images in a folder 'test' beside 'train'."
            )
        count = min(max(round(len(mine) * request.test_fraction), 1), len(mine) - 1)
        rng = np.random.default_rng([request.seed % 2**64, zlib.crc32(name.encode(errors="surrogateescape"))])
        drawn = set(rng.permutation(len(mine))[:count].tolist())
        train += [file for i, file in enumerate(mine) if i not in drawn]
        test += [file for i, file in enumerate(mine) if i in drawn]
    return train, test


def _split(files: list[_File]) -> Split:
    return Split(FileImages(tuple(f.path for f in files)), np.array([f.label for f in files], dtype=np.int64))
