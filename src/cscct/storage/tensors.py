"""Files of tensors (safetensors) that contain a checksum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .checksums import CHECKSUM, json_sha256, tensors_sha256
from .files import write_bytes

if TYPE_CHECKING:
    from torch import Tensor


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors and metadata atomically, with a checksum that `read_tensors` verifies."""
    from safetensors.torch import save

    plain, metadata = plain_tensors(tensors), dict(metadata or {})
    write_bytes(path, save(plain, metadata={**metadata, CHECKSUM: _checksum(plain, metadata)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a file of tensors.

    Args:
        path: A safetensors file. Its checksum is verified if it has one.

    Returns:
        The tensors by name, on the CPU, and the metadata.

    Raises:
        ValueError: If the file cannot be read or its checksum differs. The message is a clause without a full stop.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():  # opening a pipe would block
        raise ValueError("the file does not exist")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except (OSError, SafetensorError, AttributeError) as error:  # the last: a type that torch does not have
        raise ValueError(str(error)) from error
    if CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(tensors, metadata):
        raise ValueError("the checksum of its content differs")
    return tensors, metadata


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as safetensors requires them: on the CPU, contiguous, none sharing memory with another."""
    plain: dict[str, Tensor] = {}
    addresses = set()
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        address = copy.untyped_storage().data_ptr()
        plain[name] = copy.clone() if address in addresses else copy
        addresses.add(address)
    return plain


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    texts = {name: text for name, text in metadata.items() if name != CHECKSUM}
    return json_sha256([tensors_sha256(tensors), texts])
