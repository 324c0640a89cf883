"""Tiny-ImageNet and CUB-200-2011 in their published folders, where text files list the images and their classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import UserError
from ..base import Dataset
from ..registry import LoadRequest, locate
from ..scanning import walk
from .folders import File, dataset_of_files

TINY_FOLDER = "tiny-imagenet-200"
TINY_LABELS = Path("val") / "val_annotations.txt"
CUB_FOLDER = "CUB_200_2011"
CUB_FILES = ("classes.txt", "images.txt", "image_class_labels.txt", "train_test_split.txt")


def load_tiny_imagenet(request: LoadRequest) -> Dataset:
    """Load Tiny-ImageNet. Its validation images are the test images, since its test images have no labels.

    Args:
        request: Options of the loader.

    Raises:
        UserError: If files are missing or damaged.
    """
    root = _root("Tiny-ImageNet", TINY_FOLDER, ("wnids.txt", str(TINY_LABELS)), request)
    classes = tiny_imagenet_classes(request)
    train = []
    for label, wnid in enumerate(classes):
        paths = walk(root / "train" / wnid / "images")[0] if (root / "train" / wnid / "images").is_dir() else []
        if not paths:
            raise UserError(f"{root / 'train' / wnid / 'images'} contains no image: extract the archive again.")
        train += [File(path, label) for path in paths]
    test = []
    for number, fields in _lines(root / TINY_LABELS, 2):
        if fields[1] not in classes:
            raise _wrong(root / TINY_LABELS, number, f"{fields[1]} is not in wnids.txt")
        test.append(File(root / "val" / "images" / fields[0], classes.index(fields[1])))
    return dataset_of_files("tiny-imagenet", root, classes, (train, test), request)


def tiny_imagenet_classes(request: LoadRequest) -> tuple[str, ...]:
    """Return the sorted WordNet identifiers of Tiny-ImageNet without reading images.

    Args:
        request: Options of the loader.
    """
    root = _root("Tiny-ImageNet", TINY_FOLDER, ("wnids.txt", str(TINY_LABELS)), request)
    return tuple(sorted(fields[0] for _, fields in _lines(root / "wnids.txt", 1)))


def load_cub200(request: LoadRequest) -> Dataset:
    """Load CUB-200-2011 with its published split into training and test images.

    Args:
        request: Options of the loader.

    Raises:
        UserError: If files are missing or damaged.
    """
    root = _root("CUB-200-2011", CUB_FOLDER, CUB_FILES, request)
    class_ids = list(_table(root / "classes.txt"))
    labels, split = _table(root / "image_class_labels.txt"), _table(root / "train_test_split.txt")
    files: dict[str, list[File]] = {"1": [], "0": []}  # 1: training image
    for number, (image, name) in enumerate(_table(root / "images.txt").items(), start=1):
        if labels.get(image) not in class_ids or split.get(image) not in files:
            raise _wrong(
                root / "images.txt", number, f"image {image} has no valid entry in {CUB_FILES[2]} or {CUB_FILES[3]}"
            )
        files[split[image]].append(File(root / "images" / name, class_ids.index(labels[image])))
    return dataset_of_files("cub200", root, cub200_classes(request), (files["1"], files["0"]), request)


def cub200_classes(request: LoadRequest) -> tuple[str, ...]:
    """Return the class names of CUB-200-2011, such as `001.Black_footed_Albatross`, without reading images.

    Args:
        request: Options of the loader.
    """
    root = _root("CUB-200-2011", CUB_FOLDER, CUB_FILES, request)
    return tuple(_table(root / "classes.txt").values())


def _root(title: str, folder: str, names: Sequence[str], request: LoadRequest) -> Path:
    places = locate(request.data_dir, folder)
    root = next((place for place in places if all((place / name).is_file() for name in names)), None)
    if root is None:
        raise UserError(
            f"{title} was not found: {' and '.join(names)} are not in {' or '.join(map(str, places))}. Extract the "
            "published archive, and set --data-dir to its folder or the parent of that."
        )
    return root


def _lines(file: Path, columns: int) -> list[tuple[int, list[str]]]:
    """Return numbers and fields of the non-empty lines of a file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}. Extract the archive again.") from error
    rows = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    for number, fields in rows:
        if len(fields) < columns:
            raise _wrong(file, number, f"it has {len(fields)} columns instead of {columns}")
    return rows


def _table(file: Path) -> dict[str, str]:
    """Return the second column of a file by the first."""
    return {fields[0]: fields[1] for _, fields in _lines(file, 2)}


def _wrong(file: Path, number: int, problem: str) -> UserError:
    return UserError(f"Line {number} of {file} is invalid: {problem}. Extract the archive again.")
