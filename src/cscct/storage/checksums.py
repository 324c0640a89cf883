"""SHA-256 checksums of tensors, JSON values and files, as hexadecimal strings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUM = "sha256"  # key of the checksum that a file contains


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the checksum of tensors: names, shapes, types and bytes. The order of the mapping does not matter."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())  # NumPy lacks types such as bfloat16
    return digest.hexdigest()


def json_sha256(content: Any) -> str:
    """Return the checksum of a value in JSON. The order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
