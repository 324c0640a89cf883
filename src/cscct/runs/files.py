"""Files that are written whole or not at all, and a lock that dies with its owner."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import RunFailed, UserError

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # not on this system: runs work, but are not guarded against each other
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOCK = ".lock"


def write_bytes(path: Path, content: bytes) -> None:
    """The file is either the old one or the new one, never half of it, even if the power fails."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
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


def _sync_folder(folder: Path) -> None:
    """Makes the renaming itself last. Not every system lets a folder be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """A full disk is no bug of ours: it ends the run with a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise RunFailed(
            f"Nothing more can be written to {folder} ({error.strerror}). Make room, then go on with "
            f"`cscct resume {folder}`: the last checkpoint is whole."
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time. The system takes the lock back when its owner dies, however that happens."""
    if fcntl is None:
        yield
        return
    with _own_lock(folder) as file:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def _own_lock(folder: Path) -> IO[str]:
    while True:
        file = (folder / LOCK).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with file:
                file.seek(0)
                holder = file.read().strip() or "another process"
            raise UserError(f"The run in {folder} is being worked on by {holder}; wait for it or stop it.") from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat()):
                return file
        file.close()  # its owner removed it between our opening and our locking: there is a new one, or none


def load_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    write_bytes(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of names, shapes and bits."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
