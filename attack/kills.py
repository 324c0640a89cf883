"""Commands that are killed before each of their file operations and then repeated: the result is the same.

Audit hooks of Python report opening for writing, renaming, removing, creating folders and truncating. Writing and
synchronising are observed by replaced functions. A write is also interrupted in the middle.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from small_runs import COMPARE, EXTENDED, LUCIR, PODNET, numbers_of
from watch import CaseResult, Kind, Outside, run_command

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "fcntl.flock")
COMMANDS = (LUCIR, PODNET, COMPARE, EXTENDED)
# Operations from one case to the next; a seed selects one of them. For runs that are similar to others, some suffice.
EVERY = {EXTENDED: 3, COMPARE: 2}


class Killer:
    """Counts the file operations of this process and kills it before one of them. at: number of the operation; 0 only
    counts. counted: file for the count."""

    def __init__(self, at: int, counted: Path | None = None):
        self.at, self.counted, self.count, self.busy = at, counted, 0, False

    def install(self) -> None:
        """Observe the file operations of this process. Called in a child process, because audit hooks cannot be
        removed."""
        sys.addaudithook(self._event)
        os.fsync = self._before(os.fsync)
        real = os.fdopen
        os.fdopen = lambda *args, **named: _CountedFile(real(*args, **named), self)

    def operation(self, half: Callable[[], object] | None = None) -> None:
        """Count an operation. half: performs half of it before the process is killed."""
        if self.busy:
            return
        self.count += 1
        if self.counted is not None:
            self.busy = True
            self.counted.write_text(str(self.count))
            self.busy = False
        if self.count == self.at:
            self.busy = True
            if half is not None:
                half()
            os.kill(os.getpid(), signal.SIGKILL)

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & WRITING)
            if writes and not isinstance(path, int) and not str(path).startswith("/dev/"):
                self.operation()
        elif event in EVENTS:
            self.operation()

    def _before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.operation()
            return real(*arguments)

        return call


class _CountedFile:
    """A file whose writes are counted: a write counts as two operations, before it and in the middle of it."""

    def __init__(self, file: Any, killer: Killer):
        self.file, self.killer = file, killer

    def write(self, content: bytes) -> int:
        def half() -> None:
            self.file.write(content[: len(content) // 2])
            self.file.flush()

        self.killer.operation()
        self.killer.operation(half)
        written: int = self.file.write(content)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> _CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


class Kills(Kind):
    """Kills at operations of each command, and for some cases a second kill in the second attempt."""

    name = "kills"

    def __init__(self, scratch: Path, commands: Sequence[tuple[str, ...]] = COMMANDS):
        self.expected: dict[tuple[str, ...], Any] = {}
        self.points: list[tuple[tuple[str, ...], int, int]] = []  # command, operation, number of operations
        for number, arguments in enumerate(commands):
            folder = scratch / f"whole-{number}"
            folder.mkdir(parents=True)
            total = count_operations(folder, *arguments)
            self.expected[arguments] = numbers_of(folder)
            self.points += [(arguments, at, total) for at in range(1, total + 1, EVERY.get(arguments, 1))]
        self.cases = len(self.points)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        arguments, at, total = self.points[number]
        at = min(at + rng.randrange(EVERY.get(arguments, 1)), total)
        outside = Outside(folder / "outside")
        workdir = folder / "inside"
        workdir.mkdir()
        kills = [at, *([rng.randint(1, total)] if rng.random() < 0.3 else [])]
        result = CaseResult("same numbers", f"{' '.join(arguments[:3])} killed before operation {kills} of {total}")
        for attempt, kill in enumerate(kills):  # a second kill may come after the end, since less work is left
            completed = run_command(*arguments, folder=workdir, before=Killer(kill).install)
            if completed.code not in (-signal.SIGKILL, 0) or (completed.code == 0 and attempt == 0):
                result.faults.append(f"exit code {completed.code} instead of a kill: {completed.stderr[-300:]}")
        completed = run_command(*arguments, folder=workdir)
        result.faults += completed.faults() + outside.faults()
        if completed.code:
            result.faults.append(f"the repeated command fails: {completed.stderr[-300:]}")
        elif (numbers := numbers_of(workdir)) != self.expected[arguments]:
            result.faults.append(f"changed number: {difference(self.expected[arguments], numbers)}")
        result.faults += [f"leftover file: {path.name}" for path in workdir.rglob("*") if _leftover(path)]
        return result


def count_operations(folder: Path, *arguments: str) -> int:
    """Run a command and return the number of its file operations."""
    count = folder.with_name(f"{folder.name}.operations")
    completed = run_command(*arguments, folder=folder, before=Killer(0, count).install)
    assert completed.code == 0, completed.stderr
    return int(count.read_text())


def difference(expected: Any, result: Any) -> str:
    """Return the path of the first difference between two results."""
    if isinstance(expected, dict) and isinstance(result, dict):
        for key in {**expected, **result}:
            if expected.get(key) != result.get(key):
                return f"{key}.{difference(expected.get(key), result.get(key))}"
    return f" {str(expected)[:80]} became {str(result)[:80]}"


def _leftover(path: Path) -> bool:
    return path.name.endswith(".tmp") or path.name == "checkpoints"
