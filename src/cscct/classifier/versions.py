"""Reading of model folders: their versions, and the model of a version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runs.folder import CONFIG, RunFolder
from ..storage import temporary_path
from .labels import Label
from .records import DamagedFile, Pointer, Record, RecordReader, Version, read_pointer
from .run_model import Backbone, load_run
from .unpacking import unpack

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

MODEL = "model.json"


def is_model_folder(path: str | Path) -> bool:
    """Return whether a folder contains stored versions of a model, or a run."""
    return has_versions(path) or is_run_folder(path)


def has_versions(path: str | Path) -> bool:
    """Return whether a folder contains stored versions of a model, even if they cannot be read."""
    return os.path.lexists(Path(path) / MODEL)


def is_run_folder(path: str | Path) -> bool:
    """Return whether a folder contains a run."""
    return (Path(path) / CONFIG).is_file()


class StoredVersions:
    """The versions of a model in a folder, for reading.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def current(self) -> int:
        """Return the number of the current version; 0 for the model of a run or an empty folder."""
        return self._pointer().current if has_versions(self.path) else 0

    def load(
        self,
        version: int | None = None,
        *,
        predictor: str | None = None,
        backbone: Backbone | None = None,
        device: str = "auto",
    ) -> IncrementalClassifier:
        """Load a version.

        Args:
            version: Number of the version; 0 is the model of a run. Default: the current version.
            predictor: Predictor of the run, for version 0 only; see `load_run`.
            backbone: The backbone module, for models with a custom backbone.
            device: `auto`, `cpu`, `cuda` or `mps`.

        Returns:
            The model.

        Raises:
            UserError: If the version does not exist or is damaged.
        """
        number = self.current() if version is None else self._existing(version)
        if number == 0 and is_run_folder(self.path):
            return load_run(self.path, predictor=predictor, device=device, backbone=backbone)
        if predictor is not None:
            raise UserError("predictor is only supported for the model of a run (version 0): omit it for this version.")
        reader = RecordReader(self.path)
        self._pointer()  # fails if there is no model
        try:
            return unpack(reader.record(number).model, reader.file, backbone, device)
        except DamagedFile:
            raise
        except UserError as error:
            raise UserError(f"{self.path}, version {number}: {error}") from error

    def current_record(self) -> Record:
        """Return the record of the current version, without loading weights and statistics."""
        return RecordReader(self.path).record(self._pointer().current)

    def current_version(self) -> Version:
        """Return the summary of the current version.

        Raises:
            UserError: If it is missing or damaged.
        """
        number = self.current()
        if number == 0 and is_run_folder(self.path):
            return self._run_version(0)
        try:
            return RecordReader(self.path).record(number).summary(number)
        except UserError as error:
            raise UserError(f"{error} Restore another version with `cscct undo --to N`.") from error

    def versions(self) -> list[Version]:
        """Return all stored versions, oldest first. The model of a run is version 0."""
        if not has_versions(self.path) and is_run_folder(self.path):
            return [self._run_version(0)]
        pointer = self._pointer()  # read once: another process may change it
        reader = RecordReader(self.path)
        return [
            reader.version(number, pointer.current) if number else self._run_version(pointer.current)
            for number in self._numbers(pointer)
        ]

    def has_other_files(self) -> bool:
        """Return whether the folder contains files other than the leftovers of a killed first commit."""
        own = {"files", "versions", "staging", ".lock", ".lock-holder", temporary_path(self.path / MODEL).name}
        return any(path.name not in own for path in self.path.iterdir())

    def _pointer(self) -> Pointer:
        if not has_versions(self.path):
            raise UserError(f"{self.path} contains no model: create one with `cscct learn`.")
        return read_pointer(self.path / MODEL)

    def _numbers(self, pointer: Pointer) -> list[int]:
        """Return the numbers of the existing versions in ascending order; 0 is the model of a run."""
        names = [path.stem for path in (self.path / "versions").glob("*.json")]
        run = {0} if is_run_folder(self.path) else set()
        return sorted(run | {int(name) for name in names if name.isdecimal() and 0 < int(name) <= pointer.newest})

    def _existing(self, number: int) -> int:
        only_run = is_run_folder(self.path) and not has_versions(self.path)
        numbers = [0] if only_run else self._numbers(self._pointer())
        if number not in numbers:
            existing = ", ".join(map(str, numbers))
            raise UserError(f"The model in {self.path} has no version {number}; existing versions: {existing}.")
        return number

    def _run_version(self, current: int) -> Version:
        folder = RunFolder(self.path)
        result = folder.result()
        labels: list[Label] = [str(name) for entry in result.get("tasks", ()) for name in entry["classes"]]
        message = f"run: {result.get('method')} on {result.get('dataset')}, {result.get('status', 'not started')}"
        return Version(0, "", message, labels, 0, current == 0)
