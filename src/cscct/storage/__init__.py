"""Files of run folders and model folders: atomic writes, locks, checksums and files of tensors."""

from .checksums import CHECKSUM, file_sha256, json_sha256, tensors_sha256
from .files import (
    DISK_FULL,
    UNUSABLE,
    append_line,
    check_free_space,
    check_not_link,
    make_folder,
    open_regular,
    temporary_path,
    truncate,
    unused_path,
    write_bytes,
    write_text,
)
from .locks import HOLDER, LOCK, created, lock_holder, locked
from .tensors import plain_tensors, read_tensors, save_tensors

__all__ = [
    "CHECKSUM",
    "DISK_FULL",
    "HOLDER",
    "LOCK",
    "UNUSABLE",
    "append_line",
    "check_free_space",
    "check_not_link",
    "created",
    "file_sha256",
    "json_sha256",
    "lock_holder",
    "locked",
    "make_folder",
    "open_regular",
    "plain_tensors",
    "read_tensors",
    "save_tensors",
    "temporary_path",
    "tensors_sha256",
    "truncate",
    "unused_path",
    "write_bytes",
    "write_text",
]
