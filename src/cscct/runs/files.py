"""Files that are written whole or not at all, and a lock that is released when its owner ends."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ..errors import FolderInUse, RunFailed, UserError

if TYPE_CHECKING:
    from torch import Tensor

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EEXIST)

LOCK, HOLDER = ".lock", ".lock-holder"
CHECKSUM = "sha256"  # of a file's content, in it


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
    """A file of our own. A link in its place is refused: in a folder that somebody else made it may lead anywhere. A
    pipe is too: it would be waited for."""
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | safely, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(
                f"{path} is a link, and files of a run are not written through links: remove it."
            ) from error
        if error.errno == errno.ENXIO:
            raise UserError(f"{path} is a pipe or a device, not a file of a run: remove it.") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path} is a pipe or a device, not a file of a run: remove it.")
    return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "r+b")


def own_folder(path: Path) -> Path:
    """A folder inside a run folder, made if it is not there. A link in its place is refused."""
    not_a_link(path).mkdir(parents=True, exist_ok=True)
    return path


def not_a_link(path: Path) -> Path:
    """The path of a folder inside another of ours. A link in its place is refused."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a link, and files of a run are not written through links: remove it, or put the whole folder "
            "where the link leads (--out)."
        )
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
        raise FolderInUse(
            f"The {what} in {folder} is being worked on by {lock_holder(folder)}; wait for it or stop it."
        ) from error


def lock_holder(folder: Path) -> str:
    """Who holds the lock of a run folder."""
    with suppress(OSError, UnicodeDecodeError):
        if not (folder / HOLDER).is_file():  # a pipe would be waited for
            return "another process"
        return (folder / HOLDER).read_text(encoding="utf-8").strip() or "another process"
    return "another process"


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and texts of a file. A `ValueError` says why it cannot be read, or that its checksum differs."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():  # a pipe would be waited for
        raise ValueError("there is no such file")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except (OSError, SafetensorError, AttributeError) as error:  # the last: a type that torch does not know
        raise ValueError(str(error)) from error
    if metadata.get(CHECKSUM, _checksum(tensors, metadata)) != _checksum(tensors, metadata):
        raise ValueError("its content has another checksum")
    return tensors, metadata


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As safetensors writes them: on the CPU, contiguous, and none in the memory of another, as weights that layers
    share are."""
    found: dict[str, Tensor] = {}
    places = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        found[name] = plain.clone() if place in places else plain
        places.add(place)
    return found


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """With a checksum of tensors and texts, which `read_tensors` compares."""
    from safetensors.torch import save

    plain = plain_tensors(tensors)
    texts = dict(metadata or {})
    write_bytes(path, save(plain, metadata={**texts, CHECKSUM: _checksum(plain, texts)}))


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    texts = {name: text for name, text in metadata.items() if name != CHECKSUM}
    return json_sha256([weights_sha256(tensors), texts])


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of names, shapes and bits."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())  # NumPy does not know all types
    return digest.hexdigest()


def json_sha256(content: Any) -> str:
    """A fingerprint of values as JSON holds them."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def result_sha256(result: Mapping[str, Any]) -> str:
    """A fingerprint of a result but for times and the machine."""
    tasks = [{key: value for key, value in task.items() if key != "seconds"} for task in result["tasks"]]
    rest = {key: value for key, value in result.items() if key not in (CHECKSUM, "environment", "tasks")}
    return json_sha256([rest, tasks])


def check_result_sha256(result: Any) -> None:
    """A `ValueError` where a stored result is not what was written; those of older versions have no checksum."""
    try:
        changed = CHECKSUM in result and result[CHECKSUM] != result_sha256(result)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("it does not hold the result of a run") from error
    if changed:
        raise ValueError("its content has another checksum")


def unused_path(parent: Path, name: str) -> Path:
    """`parent/name`, with a number behind it where that is taken."""
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate
