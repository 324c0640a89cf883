"""Labelled image files: one folder per class, with or without `train`, `val` and `test`, or a CSV file."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..errors import UserError
from .image_files import SUFFIXES
from .scanning import InputProblem, display_path, expand_file, ignored_entries, scan_folder, visible_entries
from .videos import VideoFrame

CSV_SUFFIXES = (".csv", ".tsv")
PATH_COLUMNS = ("path", "file", "filename", "file_name", "filepath", "image", "image_path")
LABEL_COLUMNS = ("label", "class", "class_name", "category", "target", "species")
SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


@dataclass(frozen=True)
class LabelledFiles:
    """Image files and frames of videos with their labels, and what was left out. `learn` accepts it as images."""

    items: tuple[Path | VideoFrame, ...]
    labels: tuple[str, ...]
    problems: tuple[InputProblem, ...]


@dataclass(frozen=True)
class SplitFolders:
    """A folder that is divided into training, validation and test images, each with one folder per class.

    Attributes:
        train: Folder of the training images.
        val: Folder of the validation images, if there is one.
        test: Folder of the test images, if there is one.
        others: Other folders, which are not used.
    """

    train: Path
    val: Path | None
    test: Path | None
    others: tuple[Path, ...]


def find_splits(root: Path) -> SplitFolders | None:
    """Return the division of a folder into `train`, `val` and `test`, or None if its folders are classes.

    `train` is a class if it has no folders, or if there are other folders but neither `val` nor `test`.

    Raises:
        UserError: There are only folders with test or validation images.
    """
    folders = [folder for folder in visible_entries(root) if folder.is_dir()]
    parts: dict[str, Path] = {}
    for split, names in SPLITS.items():
        for folder in folders:
            if folder.name.casefold() in names and any(entry.is_dir() for entry in visible_entries(folder)):
                parts.setdefault(split, folder)
    others = tuple(folder for folder in folders if folder not in parts.values())
    if "train" not in parts:
        if parts and not others:
            name = next(iter(parts.values())).name
            raise UserError(f"{root} has a folder {name!r} but no folder 'train': add it, or rename it.")
        return None
    if len(parts) == 1 and others:
        return None
    return SplitFolders(parts["train"], parts.get("val"), parts.get("test"), others)


def scan_labelled(path: str | PathLike[str], split: str = "train", every: float | None = None) -> LabelledFiles:
    """Find the labelled image files in a folder with one folder per class, or in a CSV file.

    Args:
        path: The folder or file; see `scan_class_folders` and `scan_csv`.
        split: See `scan_class_folders`.
        every: Interval between frames of videos in seconds; None leaves videos out.

    Raises:
        UserError: There are no labelled images.
    """
    if Path(path).suffix.lower() in CSV_SUFFIXES and not Path(path).is_dir():
        return scan_csv(Path(path), every)
    return scan_class_folders(path, split, every)


def scan_class_folders(path: str | PathLike[str], split: str = "train", every: float | None = None) -> LabelledFiles:
    """Find the image files in `path/<class>/`, subfolders included.

    Args:
        path: The folder. If it is divided into `train`, `val` and `test`, only one of them is read.
        split: `train`, or `test` for test images (validation images if there are none).
        every: Interval between frames of videos in seconds; None leaves videos out.

    Raises:
        UserError: There are no class folders, or no images in them.
    """
    root, problems = _chosen_split(Path(path), split)
    folders = [folder for folder in visible_entries(root) if folder.is_dir()]
    problems += ignored_entries(root)
    problems += [
        InputProblem("skipped", display_path(file), "not in a class folder")
        for file in visible_entries(root)
        if not file.is_dir() and file.suffix.lower() in SUFFIXES
    ]
    items: list[Path | VideoFrame] = []
    labels: list[str] = []
    for folder in folders:
        scan = scan_folder(folder, every)
        problems += scan.problems
        items += scan.images
        labels += [normalized_name(folder.name)] * len(scan.images)
        if not scan.images:
            problems.append(InputProblem("few", display_path(folder), "no images; the class is left out"))
    if not folders:
        raise UserError(f"{root} has no class folders: put the images of each class into a folder named after it.")
    if not items:
        raise UserError(f"The class folders of {root} contain no readable images{_example(problems)}.")
    return LabelledFiles(tuple(items), tuple(labels), tuple(problems))


def _chosen_split(root: Path, split: str) -> tuple[Path, list[InputProblem]]:
    """The folder with the classes, and its neighbours that are left out."""
    splits = find_splits(root)
    if splits is None:
        return root, []
    chosen = splits.train if split == "train" else splits.test or splits.val or splits.train
    purposes = {splits.train: "training images", splits.val: "validation images", splits.test: "test images"}
    left_out = [folder for folder in (splits.train, splits.val, splits.test) if folder not in (None, chosen)]
    problems = [
        InputProblem("skipped", display_path(folder), f"{purposes[folder]}; only {chosen.name} is read")
        for folder in left_out
        if folder is not None
    ]
    problems += [
        InputProblem("skipped", display_path(folder), f"next to {chosen.name}; only {chosen.name} is read")
        for folder in splits.others
    ]
    return chosen, problems


def _example(problems: Iterable[InputProblem]) -> str:
    return next((f", for example {p.path}: {p.text}" for p in problems if p.kind != "few"), "")


def normalized_name(name: str) -> str:
    """Return a class name in one spelling of its accents, which macOS decomposes."""
    return unicodedata.normalize("NFC", name)


def scan_csv(path: Path, every: float | None = None) -> LabelledFiles:
    """Find the image files that a CSV file lists with their labels.

    The columns are `path` and `label` (or another name in `PATH_COLUMNS` and `LABEL_COLUMNS`), separated by commas,
    semicolons or tabs; without a header, the first and the second column. Relative paths start at the folder of the
    file.

    Args:
        path: The file, in UTF-8.
        every: Interval between frames of videos in seconds; None leaves videos out.

    Raises:
        UserError: The file cannot be read, has no such columns, or lists no readable image.
    """
    rows = _rows(path)
    columns = _columns(path, rows[0])
    has_header = columns is not None
    path_column, label_column = columns or (0, 1)
    items: list[Path | VideoFrame] = []
    labels: list[str] = []
    problems: list[InputProblem] = []
    for number, row in enumerate(rows[has_header:], start=1 + has_header):
        cells = [*row, "", ""]
        file, label = cells[path_column].strip(), normalized_name(cells[label_column].strip())
        if not file and not label:
            continue
        if not file or not label:
            lacking = "path" if not file else "label"
            problems.append(InputProblem("skipped", f"{display_path(path)}, row {number}", f"no {lacking}"))
            continue
        image = path.parent / Path(file).expanduser()
        if not image.exists():
            problems.append(InputProblem("unreadable", file, "does not exist"))
            continue
        images, problem = expand_file(image, every)
        items += images
        labels += [label] * len(images)
        problems += [problem] if problem else []
    if not items:
        raise UserError(f"{path} lists no readable images{_example(problems)}.")
    return LabelledFiles(tuple(items), tuple(labels), tuple(problems))


def _rows(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise UserError(f"The file {path} cannot be read: {reason}.") from error
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = [row for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter) if row]
    except csv.Error as error:
        raise UserError(f"The file {path} is not a valid CSV file: {error}.") from error
    if not rows:
        raise UserError(f"The file {path} is empty: list an image file and its label in each row.")
    return rows


def _columns(path: Path, header: list[str]) -> tuple[int, int] | None:
    """The columns of path and label, or None if the first row is not a header."""
    names = [name.strip().casefold() for name in header]
    paths = [names.index(name) for name in PATH_COLUMNS if name in names]
    labels = [names.index(name) for name in LABEL_COLUMNS if name in names]
    if paths and labels:
        return paths[0], labels[0]
    if len(header) == 2 and Path(header[0].strip()).suffix:
        return None
    raise UserError(f"{path} has no columns 'path' and 'label': name them in its first row, which is {header}.")


def similar_names(labels: Iterable[object], known: Iterable[object] = ()) -> list[InputProblem]:
    """Return a problem for each class name that differs from another one only in upper and lower case.

    Args:
        labels: Labels of the images.
        known: Labels that the model knows.
    """
    spellings: dict[str, list[str]] = {}
    new = dict.fromkeys(str(label) for label in labels)
    for name in dict.fromkeys([*(str(label) for label in known), *new]):
        spellings.setdefault(name.casefold(), []).append(name)
    return [
        InputProblem("names", name, f"differs from {names[0]} only in case, and is learned as another class")
        for names in spellings.values()
        for name in names[1:]
        if name in new
    ]
