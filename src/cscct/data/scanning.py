"""Files in folders of images: which are images, which are damaged, and which are left out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..errors import UnreadableImage, UserError
from .image_files import SUFFIXES, looks_like_image, quick_fault
from .videos import VideoFrame, is_video, read_frames

SYSTEM_FOLDERS = frozenset({"__MACOSX", "@eaDir"})  # metadata that archives of macOS and Synology contain


@dataclass(frozen=True)
class InputProblem:
    """Something about input images that the user should know.

    Attributes:
        kind: `unreadable`, `duplicate`, `few`, `skipped` or `names`.
        path: File or folder; `image 3` for an image in memory; the label for a class.
        text: What is wrong.
    """

    kind: str
    path: str
    text: str


@dataclass(frozen=True)
class FolderScan:
    """Image files below a folder, sorted, with frames of videos in their place, and what was left out."""

    images: tuple[Path | VideoFrame, ...]
    problems: tuple[InputProblem, ...]


def display_path(path: Path) -> str:
    """Return a path as text; bytes that are not valid UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def visible_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder sorted by name, without hidden ones and `SYSTEM_FOLDERS`.

    Raises:
        UserError: The folder cannot be read.
    """
    return [entry for entry in _entries(folder) if not entry.name.startswith(".") and entry.name not in SYSTEM_FOLDERS]


def ignored_entries(folder: Path) -> list[InputProblem]:
    """Return what `visible_entries` leaves out and a user may miss: hidden images and `SYSTEM_FOLDERS`.

    Files named `._*` are no images: macOS stores metadata in them.
    """
    problems = []
    for entry in _entries(folder):
        if entry.name in SYSTEM_FOLDERS:
            problems.append(InputProblem("skipped", display_path(entry), "metadata of another system, no images"))
        elif _is_hidden_image(entry.name):
            problems.append(InputProblem("skipped", display_path(entry), "hidden file"))
    return problems


def _is_hidden_image(name: str) -> bool:
    return name.startswith(".") and not name.startswith("._") and Path(name).suffix.lower() in SUFFIXES


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error


def walk(folder: Path) -> tuple[list[Path], list[InputProblem]]:
    """Return the visible files in a folder and its subfolders, sorted, and the `ignored_entries`.

    Links are followed; a folder that is reachable twice is read once.
    """
    files: list[Path] = []
    problems: list[InputProblem] = []
    visited: set[Path] = set()
    queue = [folder]
    while queue:
        current = queue.pop(0)
        if current.resolve() in visited:
            continue
        visited.add(current.resolve())
        problems += ignored_entries(current)
        for entry in visible_entries(current):
            if entry.is_dir():
                queue.append(entry)
            else:
                files.append(entry)
    return sorted(files), problems


def check_file(path: Path, fault: Callable[[Path], str | None] = quick_fault) -> InputProblem | None:
    """Return what is wrong with a file of a folder of images, or None.

    A file counts as an image if it has the suffix of one or starts like one. Other files are `skipped`;
    damaged images, and broken links and pipes with the suffix of an image, are `unreadable`.

    Args:
        path: The file.
        fault: Finds damage in an image file: `quick_fault` or `full_fault`.
    """
    try:
        regular = path.is_file()
    except OSError as error:
        return InputProblem("unreadable", display_path(path), error.strerror or str(error))
    if not regular:  # opening a pipe would block
        kind = "unreadable" if path.suffix.lower() in SUFFIXES else "skipped"
        return InputProblem(kind, display_path(path), "not a regular file, or a broken link")
    if is_video(path):
        return InputProblem("skipped", display_path(path), "a video: --every 1s reads a frame per second")
    if not looks_like_image(path):
        return InputProblem("skipped", display_path(path), "not an image file")
    reason = fault(path)
    return None if reason is None else InputProblem("unreadable", display_path(path), reason)


def expand_file(path: Path, every: float | None = None) -> tuple[list[Path | VideoFrame], InputProblem | None]:
    """Return the images of a file: itself, the frames of a video, or nothing and the reason.

    Args:
        path: The file.
        every: Interval between frames of videos in seconds; None leaves videos out.
    """
    if every is None or not is_video(path):
        problem = check_file(path)
        return [] if problem else [path], problem
    try:
        return list(read_frames(path, every)), None
    except UnreadableImage as error:
        return [], InputProblem("unreadable", display_path(path), error.reason)


def scan_folder(folder: Path, every: float | None = None) -> FolderScan:
    """Find the image files in a folder and its subfolders, without decoding them.

    Args:
        folder: The folder.
        every: Interval between frames of videos in seconds; None leaves videos out.
    """
    files, problems = walk(folder)
    images: list[Path | VideoFrame] = []
    for path in files:
        items, problem = expand_file(path, every)
        images += items
        problems += [problem] if problem else []
    return FolderScan(tuple(images), tuple(problems))


def list_images(path: str | PathLike[str], every: float | None = None) -> list[Path | VideoFrame]:
    """Return a file as it is, or all image files in a folder and its subfolders, sorted.

    Damaged files are included: whoever reads them reports the error.

    Args:
        path: The file or folder.
        every: Interval between frames of videos in seconds; None leaves the videos of a folder out.

    Raises:
        UserError: The folder contains no images.
    """
    root = Path(path)
    files = walk(root)[0] if root.is_dir() else [root]
    images: list[Path | VideoFrame] = []
    for file in files:
        if every is not None and is_video(file):
            images += expand_file(file, every)[0] or [file]
        elif not root.is_dir():
            images.append(file)
        else:
            problem = check_file(file, fault=lambda _: None)
            images += [file] if problem is None or problem.kind == "unreadable" else []
    if not images:
        raise UserError(f"There are no images in {root}.")
    return images
