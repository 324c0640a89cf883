"""The JSON files of a model folder: the pointer to the current version, and a record per version.

Both contain a checksum of their values. Files are named by their content, so the checksum of a record also covers the
tensors and images of its version. Lists that grow with the model (classes, history) are divided into blocks, which are
files too: versions share the blocks that did not change, and a version is as large as what it adds.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ..config.schema import as_json
from ..errors import UserError
from ..jsontext import parse_json
from ..specs import Spec
from ..storage import CHECKSUM, json_sha256
from .labels import Label
from .packing import Packed, PackedClass

FORMAT = 3  # 1: version 0.3, without trained networks; 2: without checksums and blocks
BLOCK = 16  # entries per block
MAX_JSON_BYTES = 64 * 2**20
BlockFile = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.json$")]


class DamagedFile(UserError):
    """A file of a model folder is damaged or cannot be read. The message contains its path."""


@dataclass(frozen=True)
class Pointer(Spec):
    """Content of model.json."""

    format: Annotated[int, Field(ge=1)]
    current: Annotated[int, Field(ge=0)]  # 0: the model of the run in this folder
    newest: Annotated[int, Field(ge=1)]  # later versions are leftovers of a killed process
    keep: Annotated[int, Field(ge=0)] = 0  # number of versions that are kept; 0: all


@dataclass(frozen=True)
class Version:
    """Summary of a version.

    Attributes:
        number: Number of the version; 0 is the model of a run.
        created: Creation time (ISO 8601).
        message: Message of the commit.
        classes: Labels of the classes.
        images: Number of learned images.
        current: Whether this is the current version.
    """

    number: int
    created: str
    message: str
    classes: list[Label]
    images: int
    current: bool


@dataclass(frozen=True)
class Record(Spec):
    """Content of a version file. In the file, the lists of `model` are empty and in blocks instead."""

    number: Annotated[int, Field(ge=1)]
    parent: Annotated[int, Field(ge=0)] | None
    created: str
    message: str
    model: Packed
    class_blocks: list[BlockFile] = field(default_factory=list)
    history_blocks: list[BlockFile] = field(default_factory=list)

    def files(self) -> set[str]:
        """Return the names of all files that this version uses."""
        return self.model.files() | {*self.class_blocks, *self.history_blocks}

    def summary(self, current: int) -> Version:
        """Return the summary of the version; `current` is the number of the current one."""
        images = sum(entry.count for entry in self.model.classes)
        labels: list[Label] = [entry.label for entry in self.model.classes]
        return Version(self.number, self.created, self.message, labels, images, self.number == current)


def pointer_text(pointer: Pointer) -> str:
    """Return the content of model.json."""
    return _with_checksum(asdict(pointer))


def record_text(record: Record) -> tuple[str, dict[str, bytes]]:
    """Return the content of a version file, and its blocks by name."""
    content = json.loads(as_json(asdict(record)))
    blocks: dict[str, bytes] = {}
    for key, list_name in (("class_blocks", "classes"), ("history_blocks", "history")):
        content[key] = _blocks(content["model"][list_name], blocks)
        content["model"][list_name] = []
    return _with_checksum(content), blocks


def _blocks(entries: Sequence[Any], blocks: dict[str, bytes]) -> list[str]:
    names = []
    for start in range(0, len(entries), BLOCK):
        content = json.dumps(entries[start : start + BLOCK], allow_nan=False).encode()
        names.append(f"{hashlib.sha256(content).hexdigest()}.json")
        blocks[names[-1]] = content
    return names


def read_pointer(path: Path) -> Pointer:
    """Read model.json.

    Raises:
        UserError: If it is damaged, or written by a newer version.
    """
    content = _read_json(path)
    if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise UserError(f"The model in {path.parent} was written by a newer version of cscct: update cscct.")
    pointer = _validated(content, Pointer, path)
    if pointer.current > pointer.newest:
        raise UserError(f"{path} is damaged: the current version is newer than the newest one.")
    return pointer


class RecordReader:
    """Reads versions. A block that several versions share is read once.

    Args:
        folder: The model folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._blocks: dict[str, Any] = {}

    def record(self, number: int) -> Record:
        """Read a version file and its blocks.

        Raises:
            UserError: If a file is missing or damaged.
        """
        path = self.folder / "versions" / f"{number:04}.json"
        record: Record = _validated(_read_json(path), Record, path)
        if record.number != number or (record.parent or 0) >= number:
            raise DamagedFile(f"{path} is damaged: it is not version {number}.")
        model = record.model  # earlier formats have no blocks
        classes = [entry for name in record.class_blocks for entry in self._block(name, list[PackedClass])]
        history = [entry for name in record.history_blocks for entry in self._block(name, list[dict[str, Any]])]
        return replace(record, model=replace(model, classes=model.classes + classes, history=model.history + history))

    def version(self, number: int, current: int) -> Version:
        """Return the summary of a version; of a damaged one, with the error as its message."""
        try:
            return self.record(number).summary(current)
        except UserError as error:
            return Version(number, "", str(error), [], 0, number == current)

    def file(self, name: str) -> bytes:
        """Return the content of a file after checking its hash.

        Raises:
            UserError: If it is missing or damaged.
        """
        path = self.folder / "files" / name
        if path.exists() and not path.is_file():
            raise DamagedFile(f"{path} is not a regular file.")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DamagedFile(f"{path} cannot be read: {error.strerror or error}.") from error
        if hashlib.sha256(content).hexdigest() != path.stem:
            raise DamagedFile(f"{path} is damaged: its SHA-256 hash is wrong.")
        return content

    def _block(self, name: str, kind: Any) -> Any:
        if name not in self._blocks:
            try:
                content = parse_json(self.file(name))
            except ValueError as error:
                raise DamagedFile(f"{self.folder / 'files' / name} is damaged: {error}.") from error
            self._blocks[name] = _validated(content, kind, self.folder / "files" / name)
        return self._blocks[name]


def _with_checksum(content: dict[str, Any]) -> str:
    return json.dumps({**content, CHECKSUM: json_sha256(content)}, allow_nan=False)


def _read_json(path: Path) -> Any:
    """Return the value in a file after checking the checksum, if there is one: earlier formats have none."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise DamagedFile(f"{path} is not a regular file.")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise DamagedFile(f"{path} is too large for a file of a model.")
        content = parse_json(path.read_bytes())
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise DamagedFile(f"{path} is damaged: {error}.") from error
    if isinstance(content, dict) and CHECKSUM in content and content.pop(CHECKSUM) != json_sha256(content):
        raise DamagedFile(f"{path} is damaged: the checksum of its values is wrong.")
    return content


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validated(content: Any, kind: Any, path: Path) -> Any:
    try:  # from text: strict validation accepts lists for tuples only there
        return _adapter(kind).validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise DamagedFile(f"{path} is damaged: {location + ': ' if location else ''}{first['msg']}.") from error
