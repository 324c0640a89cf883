"""Names of backbones: an architecture, optionally with a file of initial weights.

Examples: `lucir-resnet`, `efficientnet-lite0` (with its pretrained weights), `efficientnet-lite0:own.safetensors`,
`timm:resnet50`, `timm:resnet50:own.safetensors`. In resolved settings, a name with a file ends with a hash of the file:
`lucir-resnet:/data/own.safetensors@1f0c...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..storage import file_sha256
from .registries import BACKBONES

TIMM = "timm:"
_HASH = re.compile(r"@([0-9a-f]{16})$")


class BackboneName(NamedTuple):
    """Parsed value of `network.backbone`.

    Attributes:
        architecture: Name in `BACKBONES`, or timm:NAME.
        file: File of initial weights.
        digest: Hash of this file.
    """

    architecture: str
    file: Path | None = None
    digest: str | None = None

    @property
    def from_timm(self) -> bool:
        """Whether the backbone is created by timm."""
        return self.architecture.startswith(TIMM)

    def __str__(self) -> str:
        file = "" if self.file is None else f":{self.file}"
        return self.architecture + file + ("" if self.digest is None else f"@{self.digest}")


def parse_backbone(name: str) -> BackboneName:
    """Parse a backbone name. Whether the architecture and the file exist is not checked.

    Args:
        name: Value of `network.backbone`.

    Raises:
        UserError: If the name is a file without an architecture.
    """
    if name in BACKBONES:
        return BackboneName(name)
    if name.startswith(TIMM):
        model = parse_backbone(name.removeprefix(TIMM))
        return model._replace(architecture=TIMM + model.architecture)
    if name.endswith(".safetensors") and ":" not in name:
        raise UserError(
            f"network.backbone is the file {name}, which does not say what network its weights belong to: write "
            f"ARCHITECTURE:{name}, for example lucir-resnet:{name}."
        )
    architecture, _, rest = name.partition(":")
    match = _HASH.search(rest)
    path = rest[: match.start()] if match else rest
    return BackboneName(architecture, Path(path) if path else None, match[1] if match else None)


def architectures(backbone: BackboneName) -> Iterable[str]:
    """Return the valid architectures for a backbone name: the registered ones, and every name for timm.

    Args:
        backbone: Parsed name.
    """
    return (*BACKBONES, backbone.architecture) if backbone.from_timm else BACKBONES


def with_digest(name: str) -> str:
    """Return a backbone name with the absolute path and the hash of its file, if it has one.

    The hash makes the content of the file part of the identity of a run.

    Args:
        name: Value of `network.backbone`.

    Raises:
        UserError: If the file cannot be read.
    """
    backbone = parse_backbone(name)
    if backbone.file is None or backbone.digest is not None or backbone.architecture not in architectures(backbone):
        return name
    path = backbone.file.expanduser().absolute()
    return str(backbone._replace(file=path, digest=digest_of(path)))


def digest_of(path: Path) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a file of weights.

    Args:
        path: File.

    Raises:
        UserError: If the file cannot be read.
    """
    try:
        return file_sha256(path)[:16]
    except OSError as error:
        raise UserError(
            f"The weights {path} (network.backbone) cannot be read: {error.strerror or error}; name a safetensors file."
        ) from error
