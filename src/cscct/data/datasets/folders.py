"""Images in class folders: those of users, and the 100 classes of ImageNet used in the paper.

Folders are scanned by the same rules as in `cscct learn`. Files that are not images are left out with a warning;
damaged images are an error before training, or left out on request.
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
from ..image_files import SUFFIXES, full_fault, quick_fault
from ..labelled import CSV_SUFFIXES, find_splits, scan_csv, similar_names
from ..registry import LoadRequest, listing, locate
from ..scanning import InputProblem, check_file, display_path, visible_entries, walk

_SUBSET_NAMES = ("imagenet-subset", "imagenet100", "imagenet")


class File(NamedTuple):
    """An image file and the index of its class."""

    path: Path
    label: int


def load_folder(request: LoadRequest) -> Dataset:
    """Load `DIR/train` and `DIR/test` (or `val`), or a CSV file. Without a test folder, a part of each class becomes
    the test split."""
    root = _folder_root(request)
    if root.is_file():
        return _load_csv(root, request)
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

    _warn_of_names(classes, request)
    ignored = [f"{problem.path} ({problem.text})" for problem in walk(root)[1]]
    if ignored:
        request.warn(f"Ignored {listing(ignored)}.")
    faults = {path: InputProblem("unreadable", display_path(path), "in no class folder") for path in loose}
    faults |= _faults([file.path for file in train + test], full_fault, request)
    _refuse_or_warn(root, faults, len(train) + len(test) + len(loose), request)
    train, test = _without(train, faults, classes, train_dir), _without(test, faults, classes, test_dir)
    if test_dir is None:
        train, test = _set_aside(train, classes, request)
    return Dataset("folder", classes, _split(train), _split(test), channels=3)


def folder_classes(request: LoadRequest) -> tuple[str, ...]:
    """Return the classes of a folder of images without reading the images."""
    root = _folder_root(request)
    return _checked(root, sorted(set(scan_csv(root).labels))) if root.is_file() else _classes_in(_parts(root)[0])


def _load_csv(path: Path, request: LoadRequest) -> Dataset:
    """Load images listed in a CSV file. A part of each class becomes the test split."""
    listed = scan_csv(path)
    classes = _checked(path, sorted(set(listed.labels)))
    _warn_of_names(classes, request)
    files = [
        File(Path(str(file)), classes.index(label)) for file, label in zip(listed.items, listed.labels, strict=True)
    ]
    faults = {Path(problem.path): problem for problem in listed.problems}
    faults |= _faults([file.path for file in files], full_fault, request)
    _refuse_or_warn(path, faults, len(files) + len(listed.problems), request)
    train, test = _set_aside(_without(files, faults, classes, path), classes, request)
    return Dataset("folder", classes, _split(train), _split(test), channels=3)


def _warn_of_names(classes: Sequence[str], request: LoadRequest) -> None:
    for problem in similar_names(classes):
        request.warn(f"The class name {problem.path} {problem.text}.")


def _parts(root: Path) -> tuple[Path, Path | None]:
    """Return the folders with training and with test images."""
    splits = find_splits(root)
    return (root, None) if splits is None else (splits.train, splits.test or splits.val)


def _classes_in(train_dir: Path) -> tuple[str, ...]:
    return _checked(train_dir, _class_folders(train_dir))


def _checked(place: Path, classes: Sequence[str]) -> tuple[str, ...]:
    if len(classes) < 2:
        kind = "class" if place.is_file() else "class folder"
        plural = "" if len(classes) == 1 else "es" if place.is_file() else "s"
        raise UserError(
            f"{place} has {len(classes)} {kind}{plural}: at least two are needed, each with the images of one class."
        )
    return tuple(classes)


def load_imagenet_subset(request: LoadRequest) -> Dataset:
    """Load the 100 classes of ImageNet. Labels are ranks in the sorted list. Only headers and ends of files are read:
    decoding 126,000 images would take many minutes before the first training step."""
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
    return dataset_of_files("imagenet-subset", root, classes, (train, test), request)


def dataset_of_files(
    name: str, root: Path, classes: Sequence[str], splits: tuple[Sequence[File], Sequence[File]], request: LoadRequest
) -> Dataset:
    """Return a dataset of image files, of which only headers and ends are read.

    Args:
        name: Name of the dataset.
        root: Its folder, for messages.
        classes: Class names.
        splits: Training and test files with their class indices.
        request: Options of the loader.

    Raises:
        UserError: If images are damaged, or a class has no readable image left.
    """
    files = [*splits[0], *splits[1]]
    faults = _faults([file.path for file in files], quick_fault, request)
    _refuse_or_warn(root, faults, len(files), request)
    train, test = (_split(_without(list(split), faults, classes, root)) for split in splits)
    return Dataset(name, tuple(classes), train, test, channels=3)


def subset_wnids() -> tuple[str, ...]:
    text = Path(__file__).with_name("imagenet_subset_wnids.txt").read_text(encoding="ascii")
    return tuple(sorted(text.split()))


def _folder_root(request: LoadRequest) -> Path:
    if request.data_dir is None and not os.environ.get("CSCCT_DATA"):
        raise UserError("The dataset 'folder' needs the folder of your images: name it with --data-dir.")
    root = locate(request.data_dir)[0]
    if not root.is_dir() and not (root.is_file() and root.suffix.lower() in CSV_SUFFIXES):
        raise UserError(f"{root} is not a folder: name the folder of your images, or a CSV file, with --data-dir.")
    return root


def _visible(folder: Path) -> list[Path]:
    """Return the visible entries of a folder. Names are stored as text, so they must be valid UTF-8."""
    return _with_valid_names(visible_entries(folder))


def _with_valid_names(paths: list[Path]) -> list[Path]:
    for path in paths:
        try:
            path.name.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"The name of {display_path(path)} is not valid UTF-8 and cannot be recorded: rename it. If other "
                "programs show the name correctly, set PYTHONUTF8=1."
            ) from None
    return paths


def _class_folders(folder: Path) -> list[str]:
    return [path.name for path in _visible(folder) if path.is_dir()]


def _loose_images(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and not path.is_dir()]


def _files(split_dir: Path, classes: Sequence[str]) -> list[File]:
    """Return all files in the class folders and their subfolders. Missing class folders are reported by the check after
    loading."""
    files: list[File] = []
    for label, name in enumerate(classes):
        if (split_dir / name).is_dir():
            paths = _with_valid_names(walk(split_dir / name)[0])
            if not paths:
                raise UserError(f"The class folder {split_dir / name} is empty: add images or remove it.")
            files += [File(path, label) for path in paths]
    return files


def _faults(paths: list[Path], fault: Callable[[Path], str | None], request: LoadRequest) -> dict[Path, InputProblem]:
    """Return the problems of files by path. Threads help because Pillow releases the GIL while it decodes."""
    with warnings.catch_warnings(), ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # Pillow warns about unusual but readable files
        problems = {}
        try:
            results = zip(paths, pool.map(lambda path: check_file(path, fault), paths), strict=True)
            for number, (path, problem) in enumerate(results):
                request.progress("checking images", number + 1, len(paths))
                if problem is not None:
                    problems[path] = problem
        finally:  # after an interruption, the pool would otherwise check the remaining files
            pool.shutdown(cancel_futures=True)
        return problems


def _refuse_or_warn(root: Path, faults: dict[Path, InputProblem], total: int, request: LoadRequest) -> None:
    """Raise an error for damaged images or, on request, leave them out with a warning. Files that are not images are
    always left out."""
    names = {path: str(path.relative_to(root) if path.is_relative_to(root) else path) for path in faults}
    skipped = [names[path] for path, problem in faults.items() if problem.kind == "skipped"]
    damaged = [f"{names[path]} ({problem.text})" for path, problem in faults.items() if problem.kind != "skipped"]
    message = f"{len(damaged)} of {total - len(skipped)} files in {root} cannot be read as images: {listing(damaged)}"
    if damaged and not request.skip_bad_images:
        raise UserError(f"{message}; remove them or pass --skip-bad-images.")
    if skipped:
        count = "1 file that is not an image" if len(skipped) == 1 else f"{len(skipped)} files that are not images"
        request.warn(f"Ignored {count} in {root}: {listing(skipped)}.")
    if damaged:
        request.warn(f"{message}; they are skipped.")


def _without(
    files: list[File], faults: dict[Path, InputProblem], classes: Sequence[str], split_dir: Path | None
) -> list[File]:
    kept = [file for file in files if file.path not in faults]
    lost = sorted({file.label for file in files} - {file.label for file in kept})
    if lost:
        raise UserError(
            f"No readable image is left in {split_dir} for {listing([classes[label] for label in lost])}: "
            "add images or remove the class."
        )
    return kept


def _set_aside(files: list[File], classes: Sequence[str], request: LoadRequest) -> tuple[list[File], list[File]]:
    """Select some images of each class for testing. The draw depends on the seed and the class name only, so that a new
    class does not change the test images of the others."""
    if not 0 < request.test_fraction < 1:
        raise UserError(f"The test fraction must lie between 0 and 1, and it is {request.test_fraction}.")
    train: list[File] = []
    test: list[File] = []
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


def _split(files: list[File]) -> Split:
    return Split(FileImages(tuple(f.path for f in files)), np.array([f.label for f in files], dtype=np.int64))
