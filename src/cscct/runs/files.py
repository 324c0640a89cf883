"""Files that are written whole or not at all, and a lock that is released when its owner ends."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from filelock import FileLock, Timeout

from ..errors import RunFailed, UserError

if TYPE_CHECKING:
    from torch import Tensor

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EEXIST)

LOCK, HOLDER = ".lock", ".lock-holder"


def write_bytes(path: Path, content: bytes) -> None:
    """The file is either the old one or the new one, never half of it, even if the power fails."""
    temporary = temporary_name(path)
    if temporary.is_symlink() or temporary.exists():  # what a killed process left, or a link that leads elsewhere
        temporary.unlink()
    try:
        with open_own(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
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
    write_bytes(path, text.encode())


def append_line(path: Path, line: str) -> None:
    """Written to the disk before this returns, so that a checkpoint can rely on it."""
    with open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def truncate(path: Path, size: int) -> None:
    with open_own(path, os.O_RDWR) as file:
        file.truncate(size)


def open_own(path: Path, flags: int) -> IO[bytes]:
    """A file of our own. A link in its place is refused: in a folder that somebody else made it may lead anywhere."""
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(
                f"{path} is a link, and files of a run are not written through links: remove it."
            ) from error
        raise
    return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "r+b")


def own_folder(path: Path) -> Path:
    """A folder inside a run folder, made if it is not there. A link in its place is refused."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a link, and files of a run are not written through links: remove it, or put the whole run "
            "folder where the link leads (--out)."
        )
    path.mkdir(parents=True, exist_ok=True)
    return path


def temporary_name(path: Path) -> Path:
    """Under which a file is written before it takes its own name."""
    return path.with_name(f".{path.name}.tmp")


def _sync_folder(folder: Path) -> None:
    """Makes the renaming itself last. Not every system lets a folder be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explain_os_errors(folder: Path) -> Iterator[None]:
    """A full disk or a folder that cannot be written to is no bug of ours: it ends the run with a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise RunFailed(
                f"Nothing more can be written to {folder} ({error.strerror}). Make room, then go on with "
                f"`cscct resume {folder}`: the last checkpoint is whole."
            ) from error
        if error.errno in UNUSABLE:
            raise UserError(
                f"The folder {folder} cannot be used for results ({error.strerror}): choose another with --out."
            ) from error
        raise


@contextmanager
def locked(folder: Path, what: str = "run") -> Iterator[None]:
    """One process at a time. The lock is released when its owner ends, however that happens. what: the folder holds."""
    path, holder = folder / LOCK, folder / HOLDER
    if path.is_symlink():
        raise UserError(f"{path} is a link; files of a {what} are not written through links: remove it.")
    try:
        with FileLock(path, timeout=0):
            with suppress(OSError):  # only for the message below; the lock itself may be emptied by who asks for it
                write_text(holder, f"process {os.getpid()} on {socket.gethostname()}")
            try:
                yield
            finally:
                with suppress(OSError):
                    holder.unlink(missing_ok=True)
    except Timeout as error:
        raise UserError(
            f"The {what} in {folder} is being worked on by {lock_holder(folder)}; wait for it or stop it."
        ) from error


def lock_holder(folder: Path) -> str:
    """Who holds the lock of a run folder."""
    with suppress(OSError, UnicodeDecodeError):
        return (folder / HOLDER).read_text(encoding="utf-8").strip() or "another process"
    return "another process"


def load_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def load_metadata(path: Path) -> dict[str, str]:
    """The texts that a file of tensors carries."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(plain, metadata=dict(metadata) if metadata else None))


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of names, shapes and bits."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def unused_path(parent: Path, name: str) -> Path:
    """`parent/name`, with a number behind it where that is taken."""
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate
