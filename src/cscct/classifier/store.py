"""A model on disk: one folder, all versions of it, files named by their content.

    model.json                     the current version and the newest; replaced last, so a commit counts or does not
    versions/0001.json             what a version is made of, but for the large things
    files/<sha256>.safetensors     weights and statistics, files/<sha256>.jpg: exemplars; shared by versions

Nothing here runs code from the folder, and nothing is written through links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from ..config.schema import as_json
from ..errors import RunFailed, UserError
from ..runs.files import UNUSABLE, locked, own_folder, temporary_name, write_bytes, write_text
from ..runs.folder import CONFIG
from ..specs import Spec
from .labels import Label, check_is_text
from .packing import Packed, pack, unpack

if TYPE_CHECKING:
    from torch import nn

    from .estimator import IncrementalClassifier

FORMAT = 1
MODEL = "model.json"
LARGEST_JSON = 64 * 2**20
T = TypeVar("T")


@dataclass(frozen=True)
class Pointer(Spec):
    """The content of model.json."""

    format: int
    current: Annotated[int, Field(ge=1)]
    newest: Annotated[int, Field(ge=1)]  # files of later versions are what a killed process left


@dataclass(frozen=True)
class Record(Spec):
    """The content of a version's file."""

    number: int
    parent: int | None
    created: str
    message: str
    model: Packed


@dataclass(frozen=True)
class Version:
    """A version of a model, as `versions` lists it."""

    number: int
    created: str
    message: str
    classes: list[Label]
    images: int
    current: bool


def is_model_folder(path: str | Path) -> bool:
    """Whether a folder holds a model of this kind."""
    return (Path(path) / MODEL).is_file()


def is_run_folder(path: str | Path) -> bool:
    """Whether a folder holds a run instead."""
    return (Path(path) / CONFIG).is_file() and not is_model_folder(path)


class ModelFolder:
    """The versions of a model in a folder."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held by the one process that writes. Reading needs no lock."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.path, "model"):
                yield
        except OSError as error:
            kind = UserError if error.errno in UNUSABLE else RunFailed
            raise kind(
                f"{self.path} cannot be written to ({error.strerror or error}); a model in it is as it was. Make room "
                "or choose another folder."
            ) from error

    def current(self) -> int:
        """The number of the current version; 0 if there is no model yet."""
        return self._pointer().current if is_model_folder(self.path) else 0

    def commit(self, model: IncrementalClassifier, message: str = "", based_on: int | None = None) -> int:
        """Store a model as the newest version, which becomes the current one; its number.

        based_on: what `current` was when the model was loaded. If it has changed since, nothing is stored: what another
        process did would be lost.
        """
        check_is_text(message)
        record, files = pack(model)
        with self.lock():
            before = self._pointer() if (self.path / MODEL).exists() else None
            if based_on is not None and based_on != self.current():
                raise RunFailed(f"The model in {self.path} was changed meanwhile by another process: do it again.")
            if before is None and self.has_other_files():
                raise UserError(f"{self.path} holds other files and no model: choose another folder for the model.")
            folder = own_folder(self.path / "files")
            for name, content in files.items():
                if not _same(folder / name, content):
                    write_bytes(folder / name, content)
            number = before.newest + 1 if before else 1
            now = datetime.now(UTC).isoformat(timespec="seconds")
            version = Record(number, before.current if before else None, now, message, record)
            write_text(own_folder(self.path / "versions") / f"{number:04}.json", as_json(asdict(version)))
            self._record(number)  # what cannot be read again never becomes the current version
            self._point(number, number)
            self._sweep()
        return number

    def load(
        self, version: int | None = None, *, backbone: nn.Module | None = None, device: str = "auto"
    ) -> IncrementalClassifier:
        """The model of a version, by default the current one."""
        record = self.current_record() if version is None else self._record(self._existing(version))
        return unpack(record.model, self._file, backbone, device)

    def current_record(self) -> Record:
        """What the current version is made of: enough to describe it, without the network and the statistics."""
        return self._record(self._pointer().current)

    def versions(self) -> list[Version]:
        """All versions that are kept, the oldest first."""
        pointer = self._pointer()  # once: another process may move it meanwhile
        return [self._version(number, pointer.current) for number in self._numbers(pointer)]

    def undo(self) -> Version:
        """Go back to the version from which the current one was made."""
        with self.lock():
            pointer = self._pointer()
            parent = self._record(pointer.current).parent
            if parent is None or parent not in self._numbers(pointer):
                raise UserError(f"The model in {self.path} has no earlier version to go back to.")
            return self._make_current(parent, pointer)

    def restore(self, number: int) -> Version:
        """Make a version the current one; the others stay."""
        with self.lock():
            return self._make_current(self._existing(number), self._pointer())

    def discard_history(self) -> None:
        """Remove all versions but the current one, and the files that only they used."""
        with self.lock():
            pointer = self._pointer()
            self._point(pointer.current, pointer.current)
            for number in self._numbers(pointer):
                if number != pointer.current:
                    (self.path / "versions" / f"{number:04}.json").unlink()
            self._sweep()

    # Within

    def _pointer(self) -> Pointer:
        if not (self.path / MODEL).exists():
            raise UserError(f"There is no model in {self.path}: `cscct learn` makes one.")
        pointer = self._json(self.path / MODEL, Pointer)
        if pointer.format > FORMAT:
            raise UserError(f"The model in {self.path} was written by a newer version of cscct: update cscct.")
        return pointer

    def _point(self, current: int, newest: int) -> None:
        write_text(self.path / MODEL, json.dumps(asdict(Pointer(FORMAT, current, newest))))

    def _make_current(self, number: int, pointer: Pointer) -> Version:
        self._record(number)  # a version that cannot be read never becomes the current one
        self._point(number, pointer.newest)
        return self._version(number, number)

    def _numbers(self, pointer: Pointer) -> list[int]:
        names = [path.stem for path in (self.path / "versions").glob("*.json")]
        return sorted(int(name) for name in names if name.isdecimal() and 0 < int(name) <= pointer.newest)

    def _existing(self, number: int) -> int:
        numbers = self._numbers(self._pointer())
        if number not in numbers:
            known = ", ".join(str(one) for one in numbers)
            raise UserError(f"The model in {self.path} has no version {number}; it has {known}.")
        return number

    def _record(self, number: int) -> Record:
        return self._json(self.path / "versions" / f"{number:04}.json", Record)

    def _version(self, number: int, current: int) -> Version:
        try:
            one = self._record(number)
        except UserError as error:
            return Version(number, "", str(error), [], 0, number == current)
        images = sum(entry.count for entry in one.model.classes)
        labels: list[Label] = [entry.label for entry in one.model.classes]
        return Version(number, one.created, one.message, labels, images, number == current)

    def _json(self, path: Path, kind: type[T]) -> T:
        try:
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise UserError(f"{path} is no file, and so no part of a model.")
            if path.stat().st_size > LARGEST_JSON:
                raise UserError(f"{path} is too large to be part of a model.")
            return TypeAdapter(kind).validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(one) for one in first["loc"])
            raise UserError(f"{path} is damaged: {place + ': ' if place else ''}{first['msg']}.") from error
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error

    def _file(self, name: str) -> bytes:
        """A file named by its content, which is checked."""
        path = self.path / "files" / name
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is no file, and so no part of the model.")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}, a part of the model, cannot be read: {error.strerror or error}.") from error
        if hashlib.sha256(content).hexdigest() != path.stem:
            raise UserError(f"{path} is damaged: its content is not what was written.")
        return content

    def _sweep(self) -> None:
        """Remove files that no version uses; none, where a version does not say what it uses. Other files of ours that
        a killed process left go too; folders, which are not ours, stay."""
        pointer = self._pointer()
        try:
            used = {name for number in self._numbers(pointer) for name in self._record(number).model.files()}
        except UserError:
            return
        for path in (self.path / "files").iterdir():
            if path.name not in used:
                _remove_file(path)
        for path in (self.path / "versions").iterdir():
            stray = path.suffix == ".json" and path.stem.isdecimal() and int(path.stem) > pointer.newest
            if stray or path.name.endswith(".tmp"):
                _remove_file(path)

    def has_other_files(self) -> bool:
        """Whether the folder holds something else than what a killed first commit leaves."""
        own = {"files", "versions", "staging", ".lock", ".lock-holder", temporary_name(self.path / MODEL).name}
        return any(path.name not in own for path in self.path.iterdir())


def _same(path: Path, content: bytes) -> bool:
    """Whether a file is there and whole; one that was damaged is written again."""
    return path.is_file() and not path.is_symlink() and path.read_bytes() == content


def _remove_file(path: Path) -> None:
    """Unless it is a folder."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
