"""Checkpoint files: atomic, verified by checksums, only the newest two kept. Tensors and JSON, no pickle."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage import json_sha256, make_folder, plain_tensors, write_bytes

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
FILE_NAME = re.compile(r"\.?checkpoint-\d+\.(json|safetensors)(\.tmp)?")


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]  # JSON values


class Checkpoints:
    """The checkpoints of a run.

    A checkpoint is two files: the tensors, and the state with the checksums of both, which is written last. A
    checkpoint without a state file does not count, so a process that dies between the two writes loses nothing.

    Args:
        folder: Folder of the files. It need not exist.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Store a checkpoint and remove all but the newest two."""
        from safetensors.torch import save

        make_folder(self.folder)
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 1
        blob = save(plain_tensors(tensors))
        content = {"tensors_sha256": hashlib.sha256(blob).hexdigest(), "state": state}
        text = json.dumps({**content, "sha256": json_sha256(content)})
        write_bytes(self._tensors(number), blob)
        write_bytes(self._state(number), text.encode())
        for old in numbers[: 1 - KEPT]:
            self._remove(old)

    def latest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest undamaged checkpoint, or None. Each damaged one is skipped with a warning."""
        for number in reversed(self._numbers()):
            try:
                return self._read(number)
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                warn(f"The checkpoint {self._state(number)} is damaged ({error}). The previous one is used, if any.")
        return None

    def clear(self) -> None:
        """Remove all checkpoints, complete or not, and the folder if it is then empty."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return
        for number in self._numbers():
            self._remove(number)
        for path in self.folder.iterdir():
            if FILE_NAME.fullmatch(path.name):
                path.unlink()
        with suppress(OSError):  # the folder contains files of the user
            self.folder.rmdir()

    def _read(self, number: int) -> Checkpoint:
        from safetensors.torch import load

        for path in (self._state(number), self._tensors(number)):
            if path.exists() and not path.is_file():  # opening a pipe would block
                raise ValueError(f"{path.name} is not a regular file")
        content = json.loads(self._state(number).read_bytes())
        if json_sha256({key: content[key] for key in ("tensors_sha256", "state")}) != content["sha256"]:
            raise ValueError("the checksum of its state differs")
        blob = self._tensors(number).read_bytes()
        if hashlib.sha256(blob).hexdigest() != content["tensors_sha256"]:
            raise ValueError("the checksum of its tensors differs")
        return Checkpoint(load(blob), content["state"])

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        matches = (re.fullmatch(r"checkpoint-(\d+)\.json", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def _remove(self, number: int) -> None:
        """Remove the state first: tensors without a state are ignored, a state without tensors looks damaged."""
        self._state(number).unlink(missing_ok=True)
        self._tensors(number).unlink(missing_ok=True)

    def _tensors(self, number: int) -> Path:
        return self.folder / f"checkpoint-{number:06}.safetensors"

    def _state(self, number: int) -> Path:
        return self.folder / f"checkpoint-{number:06}.json"
