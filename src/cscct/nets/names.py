"""How `network.backbone` names a network: an architecture, and a file of weights to start from if one is given.

`lucir-resnet`, `efficientnet-lite0` (with its pretrained weights), `efficientnet-lite0:own.safetensors` and
`timm:resnet50` are such names. One with a file ends with a hash of it once the settings are resolved:
`lucir-resnet:/data/own.safetensors@1f0c...`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from .registries import BACKBONES

TIMM = "timm:"
_HASH = re.compile(r"@([0-9a-f]{16})$")


class BackboneName(NamedTuple):
    """A value of `network.backbone`, taken apart."""

    architecture: str  # a name in BACKBONES, or timm:NAME
    file: Path | None = None  # weights to start from
    digest: str | None = None  # of that file

    @property
    def from_timm(self) -> bool:
        return self.architecture.startswith(TIMM)

    def __str__(self) -> str:
        file = "" if self.file is None else f":{self.file}"
        return self.architecture + file + ("" if self.digest is None else f"@{self.digest}")


def parse_backbone(name: str) -> BackboneName:
    """Takes a name apart; whether there is such an architecture or file is not asked."""
    if name in BACKBONES or name.startswith(TIMM):
        return BackboneName(name)
    if name.endswith(".safetensors") and ":" not in name:
        raise UserError(
            f"network.backbone is the file {name}, which does not say what network its weights belong to: write "
            f"ARCHITECTURE:{name}, for example lucir-resnet:{name}."
        )
    architecture, _, rest = name.partition(":")
    found = _HASH.search(rest)
    path = rest[: found.start()] if found else rest
    return BackboneName(architecture, Path(path) if path else None, found[1] if found else None)


def architectures(wanted: BackboneName) -> Iterable[str]:
    """Those that a name may have: what is registered, and any network of timm, which knows its own."""
    return (*BACKBONES, wanted.architecture) if wanted.from_timm else BACKBONES


def with_digest(name: str) -> str:
    """The name with the absolute path and the hash of its file, if it has one: another file makes it another run."""
    wanted = parse_backbone(name)
    if wanted.file is None or wanted.digest is not None or wanted.architecture not in BACKBONES:
        return name
    path = wanted.file.expanduser().absolute()
    return str(wanted._replace(file=path, digest=digest_of(path)))


def digest_of(path: Path) -> str:
    """The beginning of the SHA-256 of a file of weights."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(
            f"The weights {path} (network.backbone) cannot be read: {error.strerror or error}; name a safetensors file."
        ) from error
