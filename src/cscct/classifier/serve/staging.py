"""Photographs that wait for the next learning step, on disk, so that they outlive the server."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path

from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from ...data.image_files import read_reduced
from ...errors import UserError
from ...runs.files import lock_holder, locked, own_folder, write_bytes, write_text
from .limits import Limits
from .uploads import Upload, explained

THUMBNAIL = 192  # pixels; shown at half of it on fine screens
PENDING = "learning.json"
_ID = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True)
class Staged:
    """A photograph that waits. id: made here, and the only part of a path."""

    id: str
    label: str
    filename: str
    bytes: int
    created: float


@dataclass(frozen=True)
class Batch:
    """What a learning step takes."""

    id: str
    photographs: list[Staged]

    @property
    def tag(self) -> str:
        """In the message of the version that came of it."""
        return f"[{self.id}]"


class Staging:
    """The folder MODEL/staging: for each photograph ID.image, ID.jpg (a thumbnail) and ID.json, which is written last
    and removed first."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder, self.limits = folder, limits
        self._items: dict[str, Staged] = {}
        self._mutex = threading.Lock()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """One server a folder. Reads what an earlier one left."""
        own_folder(self.folder)
        try:
            with locked(self.folder):
                self._read()
                yield
        except UserError as error:
            if "worked on" not in str(error):
                raise
            raise UserError(
                f"The model in {self.folder.parent} is served already by {lock_holder(self.folder)}: use that page, "
                "or stop it."
            ) from error

    def _read(self) -> None:
        found = []
        for path in self.folder.glob("*.json"):
            if _ID.fullmatch(path.stem):
                try:
                    one = TypeAdapter(Staged).validate_json(path.read_bytes())
                except ValueError:
                    one = None
                if one is not None and one.id == path.stem:  # it becomes part of paths
                    found.append(one)
                else:  # damaged: as if it were not there
                    path.unlink()
        self._items = {one.id: one for one in sorted(found, key=lambda one: (one.created, one.id))}
        for path in self.folder.iterdir():  # what was being written when a server was killed
            if path.suffix in (".image", ".jpg", ".tmp") and path.stem not in self._items:
                path.unlink()

    def all(self) -> list[Staged]:
        return list(self._items.values())

    def get(self, id: str) -> Staged:
        if id not in self._items:
            raise HTTPException(404, "No photograph with this id waits: it was removed, or learned.")
        return self._items[id]

    def image(self, id: str) -> Path:
        return self.folder / f"{self.get(id).id}.image"

    def thumbnail(self, id: str) -> bytes:
        return (self.folder / f"{self.get(id).id}.jpg").read_bytes()

    def add(self, label: str, uploads: Sequence[Upload]) -> list[Staged]:
        """All of them, or none: when there is no room, or the disk is full."""
        thumbnails = [_thumbnail(upload) for upload in uploads]  # decodes them: none is staged that cannot be read
        with self._mutex:
            sizes = [upload.path.stat().st_size for upload in uploads]
            room = self.limits.staged_bytes - sum(one.bytes for one in self._items.values())
            if len(self._items) + len(uploads) > self.limits.staged_files or sum(sizes) > room:
                raise HTTPException(409, "Too many photographs wait already: learn them, or remove some, first.")
            added: list[Staged] = []
            try:
                for upload, size, thumbnail in zip(uploads, sizes, thumbnails, strict=True):
                    one = Staged(secrets.token_hex(12), label, upload.filename, size, time.time())
                    added.append(one)
                    write_bytes(self.folder / f"{one.id}.image", upload.path.read_bytes())
                    write_bytes(self.folder / f"{one.id}.jpg", thumbnail)
                    self._write(one)
            except OSError:  # the client sends all of them again
                self._remove(added)
                raise
            return added

    def remove(self, ids: Iterable[str]) -> None:
        """Those that are there."""
        with self._mutex:
            self._remove([self._items[id] for id in list(ids) if id in self._items])

    def _remove(self, staged: Iterable[Staged]) -> None:
        for one in staged:
            self._items.pop(one.id, None)
            for suffix in ("json", "image", "jpg"):
                (self.folder / f"{one.id}.{suffix}").unlink(missing_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Photographs of a class that got another name."""
        with self._mutex:
            for one in [replace(one, label=new) for one in self._items.values() if one.label == old]:
                self._write(one)

    def _write(self, one: Staged) -> None:
        write_text(self.folder / f"{one.id}.json", json.dumps(asdict(one)))
        self._items[one.id] = one

    def begin(self) -> Batch:
        """Everything that waits now, written down so that a later server knows what a killed one was learning."""
        batch = Batch(secrets.token_hex(4), self.all())
        write_text(self.folder / PENDING, json.dumps(asdict(batch)))
        return batch

    def end(self, batch: Batch, learned: bool) -> None:
        """After a learning step."""
        if learned:
            self.remove(one.id for one in batch.photographs)
        (self.folder / PENDING).unlink(missing_ok=True)

    def recover(self, messages: Iterable[str]) -> None:
        """After a killed server: what its last learning step took is removed if a version came of it."""
        try:
            batch = read_batch(self.folder)
        except FileNotFoundError:
            return
        except ValueError:  # damaged
            (self.folder / PENDING).unlink()
            return
        self.end(batch, learned=any(batch.tag in message for message in messages))


def read_batch(folder: Path) -> Batch:
    """What the server wrote down in `begin`."""
    return TypeAdapter(Batch).validate_json((folder / PENDING).read_bytes())


def _thumbnail(upload: Upload) -> bytes:
    with explained(upload.path, upload.filename):
        image, _ = read_reduced(upload.path, lambda width, height: max(width, height) / THUMBNAIL)
        image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = BytesIO()
    image.save(out, "JPEG", quality=80)
    return out.getvalue()
