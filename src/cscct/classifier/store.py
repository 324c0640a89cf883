"""Model folders: all versions of a model, with content-addressed files.

    model.json                     numbers of the current and the newest version; written last, so that commits are
                                   atomic
    versions/0001.json             a version: parameters and file names
    versions/.unfinished           exists while the folder is changed; if a process is killed then, the next commit
                                   removes the files that no version uses
    files/<sha256>.json            blocks of classes and of the history, shared by versions
    files/<sha256>.safetensors     weights and statistics, shared by versions
    files/<sha256>.jpg, .png       exemplars, shared by versions

The folder of a run is also a model folder: the model of the run is version 0, and later versions are stored next to the
result of the run. Loading executes no code from the folder, and writing does not follow symbolic links.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RunFailed, UserError
from ..storage import UNUSABLE, locked, make_folder, write_bytes, write_text
from .labels import check_is_text
from .packing import pack
from .records import FORMAT, Pointer, Record, RecordReader, Version, pointer_text, record_text
from .versions import MODEL, StoredVersions, is_run_folder

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

UNFINISHED = ".unfinished"


class ModelFolder(StoredVersions):
    """A folder with the versions of a model.

    Args:
        path: Path of the folder.
    """

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for writing. Reading needs no lock.

        Raises:
            UserError: If the folder is locked by another process or cannot be used.
            RunFailed: If writing fails, for example because the disk is full.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.path):
                yield
        except OSError as error:
            kind = UserError if error.errno in UNUSABLE else RunFailed
            raise kind(
                f"{self.path} cannot be written to ({error.strerror or error}). The stored model did not change. Free "
                "disk space or choose another folder."
            ) from error

    def commit(
        self,
        model: IncrementalClassifier,
        message: str = "",
        based_on: int | None = None,
        keep_versions: int | None = None,
    ) -> int:
        """Store a model as a new version and make it the current one.

        The time and the space that this takes do not depend on the number of versions: files that did not change are
        shared with earlier versions.

        Args:
            model: The model.
            message: Description of the version.
            based_on: Number of the version that the model was loaded from. If given, the commit fails if another
                version is current, so that changes of other processes are not lost.
            keep_versions: Number of versions that are kept, this one included; older ones are removed, now and by later
                commits. 0: all. Default: as before.

        Returns:
            The number of the new version.

        Raises:
            UserError: If the folder contains other files, or the message is not valid text.
            RunFailed: If the current version is not `based_on`, or writing fails.
        """
        check_is_text(message)
        if keep_versions is not None and keep_versions < 0:
            raise UserError(f"keep_versions must be at least 1, or 0 for all versions, not {keep_versions}.")
        packed, files = pack(model)
        with self.lock():
            before = self._pointer() if (self.path / MODEL).exists() else None
            if based_on is not None and based_on != self.current():
                raise RunFailed(f"The model in {self.path} was changed by another process in the meantime: try again.")
            if before is None and not is_run_folder(self.path) and self.has_other_files():
                raise UserError(f"{self.path} contains other files and no model: choose another folder.")
            number = before.newest + 1 if before else 1
            now = datetime.now(UTC).isoformat(timespec="seconds")
            parent = before.current if before else 0 if is_run_folder(self.path) else None
            text, blocks = record_text(Record(number, parent, now, message, packed))
            keep = keep_versions if keep_versions is not None else before.keep if before else 0
            with self._changing() as interrupted:
                folder = make_folder(self.path / "files")
                for name, content in {**files, **blocks}.items():
                    if not _is_intact(folder / name, content):
                        write_bytes(folder / name, content)
                write_text(self._version_file(number), text)
                RecordReader(self.path).record(number)  # an unreadable version must not become the current one
                self._point(Pointer(FORMAT, number, number, keep))
                removed = self._remove_versions(self._numbers(self._pointer())[:-keep]) if keep else False
                if interrupted or removed or before is None or before.format < FORMAT:
                    self._sweep()
        return number

    def undo(self) -> Version:
        """Go back to the version from which the current one was made.

        Returns:
            The version that is now current.

        Raises:
            UserError: If there is no earlier version.
        """
        self._pointer()  # fail before the lock file is created
        with self.lock():
            pointer = self._pointer()
            parent = self.current_record().parent if pointer.current else None
            if parent is None or parent not in self._numbers(pointer):
                raise UserError(f"The model in {self.path} has no earlier version.")
            return self._make_current(parent, pointer)

    def restore(self, number: int) -> Version:
        """Make a version the current one. No version is removed.

        Args:
            number: Number of the version.

        Returns:
            The version that is now current.

        Raises:
            UserError: If the version does not exist or is damaged.
        """
        with self.lock():
            return self._make_current(self._existing(number), self._pointer())

    def discard_history(self) -> None:
        """Remove all versions except the current one and version 0, and all files that are no longer used."""
        with self.lock(), self._changing():
            pointer = self._pointer()
            numbers = [number for number in self._numbers(pointer) if number != pointer.current]
            self._point(replace(pointer, format=FORMAT, newest=max(1, pointer.current)))
            self._remove_versions(numbers)
            self._sweep()

    def _point(self, pointer: Pointer) -> None:
        write_text(self.path / MODEL, pointer_text(pointer))

    def _make_current(self, number: int, pointer: Pointer) -> Version:
        # an unreadable version must not become the current one
        version = self._run_version(0)
        if number:
            version = RecordReader(self.path).record(number).summary(number)
        self._point(replace(pointer, format=FORMAT, current=number))
        return version

    def _version_file(self, number: int) -> Path:
        return self.path / "versions" / f"{number:04}.json"

    @contextmanager
    def _changing(self) -> Iterator[bool]:
        """Mark the folder while files are added and removed. Yields whether an earlier change was interrupted."""
        mark = make_folder(self.path / "versions") / UNFINISHED
        interrupted = mark.is_symlink() or mark.exists()
        write_bytes(mark, b"")
        yield interrupted
        mark.unlink()

    def _remove_versions(self, numbers: list[int]) -> bool:
        """Remove version files except that of version 0, which is a run. Returns whether there were any."""
        paths = [self._version_file(number) for number in numbers if number]
        for path in paths:
            path.unlink(missing_ok=True)
        return bool(paths)

    def _sweep(self) -> None:
        """Remove files that no version uses, and leftovers of killed processes.

        Nothing is removed if a version is unreadable, because its files are unknown. Folders of other programs are
        kept.
        """
        pointer, reader = self._pointer(), RecordReader(self.path)
        try:
            used = {name for number in self._numbers(pointer) if number for name in reader.record(number).files()}
        except UserError:
            return
        for path in make_folder(self.path / "files").iterdir():
            if path.name not in used:
                _remove_file(path)
        for path in (self.path / "versions").iterdir():
            leftover = path.suffix == ".json" and path.stem.isdecimal() and int(path.stem) > pointer.newest
            if leftover or path.name.endswith(".tmp"):
                _remove_file(path)


def _is_intact(path: Path, content: bytes) -> bool:
    """Return whether a file exists and has this content."""
    return path.is_file() and not path.is_symlink() and path.read_bytes() == content


def _remove_file(path: Path) -> None:
    """Remove a file or link. Folders are kept."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
