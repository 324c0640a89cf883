"""Atomic writes, appends and folders. Nothing is written through links, pipes or devices."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

from ..errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EEXIST)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically.

    The content is written to a temporary file, synchronised to disk and renamed. After a crash or a power failure, the
    file has either its old or its new content.
    """
    temporary = temporary_path(path)
    if temporary.is_symlink() or temporary.exists():  # left by a killed process, or a link to another place
        temporary.unlink()
    try:
        with open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically, encoded in UTF-8."""
    write_bytes(path, text.encode())


def append_line(path: Path, line: str) -> None:
    """Append a line to a file and synchronise it to disk, so that a later checkpoint can rely on it."""
    with open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def truncate(path: Path, size: int) -> None:
    """Shorten a file to `size` bytes."""
    with open_regular(path, os.O_RDWR) as file:
        file.truncate(size)


def open_regular(path: Path, flags: int) -> IO[bytes]:
    """Open a regular file for writing.

    Args:
        path: The file. A link is refused, because it may point outside the folder. A pipe or device is refused, because
            opening it may block.
        flags: Flags of `os.open`.

    Returns:
        The open binary file.

    Raises:
        UserError: If the path is a link, a pipe or a device.
    """
    no_follow = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | no_follow, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_error(path) from error
        if error.errno == errno.ENXIO:
            raise _pipe_error(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _pipe_error(path)
    return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "r+b")


def make_folder(path: Path) -> Path:
    """Create a folder and its parents if they do not exist, and return it. A link in its place is refused."""
    check_not_link(path).mkdir(parents=True, exist_ok=True)
    return path


def check_not_link(path: Path) -> Path:
    """Return the path, or raise a `UserError` if it is a link."""
    if path.is_symlink():
        raise _link_error(path)
    return path


def temporary_path(path: Path) -> Path:
    """Return the path that `write_bytes` writes to before it renames the file."""
    return path.with_name(f".{path.name}.tmp")


def unused_path(parent: Path, name: str) -> Path:
    """Return `parent/name`, with a number appended if that path exists."""
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate


def check_free_space(folder: Path, needed: float, content: str, advice: str) -> None:
    """Raise a `UserError` if a disk is too full.

    Args:
        folder: An existing folder on the disk.
        needed: Required space in bytes.
        content: What is to be written, as the subject of a sentence (plural).
        advice: What the user can do instead, as an imperative clause.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{content} need up to {needed / 1e9:,.1f} GB, but {folder} has only {free / 1e9:,.1f} GB of free space: "
            f"{advice}."
        )


def _link_error(path: Path) -> UserError:
    return UserError(f"{path} is a link, and files are not written through links: remove the link.")


def _pipe_error(path: Path) -> UserError:
    return UserError(f"{path} is a pipe or a device, not a regular file: remove it.")


def _sync_folder(folder: Path) -> None:
    """Synchronise a folder, so that a rename survives a power failure. Some systems cannot open folders."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
