"""Stored data of each photo besides its features: identity, name, and whether its label was confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import UserError
from .labels import Label

ID_BYTES = 16


@dataclass(frozen=True)
class Photo:
    """A learned photo.

    Attributes:
        id: Hash of its pixels as the network reads them, in hexadecimal: equal for equal pixels. Empty for photos of
            models of earlier versions.
        name: Path as the user wrote it, or `image 3` for an image in memory.
        confirmed: Whether the user confirmed its label.
    """

    id: str = ""
    name: str = ""
    confirmed: bool = False


@dataclass(frozen=True)
class ClassPhotos:
    """The photos of a class, in the order in which they were learned.

    Attributes:
        photos: The photos. Those before the first known one may be missing; see `padded`.
        exemplars: Identities of the stored images, in rank order.
    """

    photos: tuple[Photo, ...] = ()
    exemplars: tuple[str, ...] = ()

    def padded(self, count: int) -> ClassPhotos:
        """Return the photos with empty entries for those that were learned before photos were recorded.

        Args:
            count: Number of learned photos of the class.
        """
        missing = count - len(self.photos)
        return replace(self, photos=(*(Photo(),) * missing, *self.photos)) if missing > 0 else self

    def exemplar_ids(self, count: int) -> list[str]:
        """Return the identities of the stored images; empty for those of models of earlier versions.

        Args:
            count: Number of stored images of the class.
        """
        return [*self.exemplars[:count], *[""] * (count - len(self.exemplars))]

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields as tensors for a file."""
        names = "\0".join(photo.name for photo in self.photos).encode("utf-8", "surrogateescape")
        return {
            "ids": _to_bytes(photo.id for photo in self.photos),
            "names": torch.frombuffer(bytearray(names), dtype=torch.uint8)
            if names
            else torch.empty(0, dtype=torch.uint8),
            "confirmed": torch.tensor([photo.confirmed for photo in self.photos], dtype=torch.bool),
            "exemplars": _to_bytes(self.exemplars),
        }

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], count: int) -> ClassPhotos:
        """Return what `tensors` describes.

        Args:
            tensors: Result of `tensors`.
            count: Number of learned photos of the class.

        Raises:
            UserError: The tensors do not fit.
        """
        try:
            ids, exemplars = (_from_bytes(tensors[name]) for name in ("ids", "exemplars"))
            names = bytes(tensors["names"].tolist()).decode("utf-8", "surrogateescape").split("\0") if ids else []
            flags = tensors["confirmed"].bool().tolist()
            photos = tuple(Photo(*values) for values in zip(ids, names, flags, strict=True))
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise UserError("The list of photos of the model is damaged.") from error
        if len(photos) != count:
            raise UserError("The list of photos of the model is damaged: their number is wrong.")
        return ClassPhotos(photos, tuple(exemplars))


def _to_bytes(ids: Iterable[str]) -> Tensor:
    rows = [bytes.fromhex(id) if id else bytes(ID_BYTES) for id in ids]
    return (
        torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).reshape(-1, ID_BYTES)
        if rows
        else torch.empty(0, ID_BYTES, dtype=torch.uint8)
    )


def _from_bytes(rows: Tensor) -> list[str]:
    if rows.dtype != torch.uint8 or rows.shape[1:] != (ID_BYTES,):
        raise ValueError("identities have the wrong shape")
    return [bytes(row).hex() if any(row) else "" for row in rows.tolist()]


def known_ids(photos: Mapping[Label, ClassPhotos]) -> dict[str, Label]:
    """Return the class of each photo whose identity is known."""
    return {photo.id: label for label, members in photos.items() for photo in members.photos if photo.id}
