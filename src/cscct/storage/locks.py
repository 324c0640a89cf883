"""Folder locks. The operating system releases a lock when the process that holds it ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import FolderInUse
from .files import check_not_link, write_text

LOCK, HOLDER = ".lock", ".lock-holder"


@contextmanager
def created(folder: Path) -> Iterator[None]:
    """Create a folder and its parents. Those that were created are removed at the end if nothing but a lock is in them.

    Args:
        folder: The folder, which may exist.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            if missing and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
            for path in missing:
                path.rmdir()  # fails if the folder contains anything


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder.

    Raises:
        FolderInUse: If another process holds the lock. The message names it.
        UserError: If the lock file is a link.
    """
    from filelock import FileLock, Timeout

    path, holder = check_not_link(folder / LOCK), folder / HOLDER
    try:
        with FileLock(path, timeout=0):
            with suppress(OSError):  # a separate file: a process that tries to lock may empty the lock file
                write_text(holder, f"process {os.getpid()} on {socket.gethostname()}")
            try:
                yield
            finally:
                with suppress(OSError):
                    holder.unlink(missing_ok=True)
    except Timeout as error:
        raise FolderInUse(
            f"The folder {folder} is in use by {lock_holder(folder)}: wait until it ends, or stop it."
        ) from error


def lock_holder(folder: Path) -> str:
    """Return the process and host that hold the lock of a folder, for messages."""
    path = folder / HOLDER
    with suppress(OSError, UnicodeDecodeError):
        if path.is_file():  # reading a pipe would block
            return path.read_text(encoding="utf-8").strip() or "another process"
    return "another process"
