"""A command is killed before each of its file operations and repeated: the result is the same.

Opening for writing, renaming, removing, making folders and truncating are seen by Python's audit hooks; writing and
synchronising, which have none, by replaced functions. A write is also cut in half.
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
from watch import CaseResult, Kind, Outside, command

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "fcntl.flock")
COMMANDS = (LUCIR, PODNET, COMPARE, EXTENDED)
EVERY = {EXTENDED: 3}  # operations: of a run like the others, it is enough to kill at some


class Killer:
    """Counts the file operations of this process, and ends it before one of them. at: 0 only counts, into a file."""

    def __init__(self, at: int, counted: Path | None = None):
        self.at, self.counted, self.count, self.busy = at, counted, 0, False

    def install(self) -> None:
        """In a child: an audit hook stays."""
        sys.addaudithook(self._event)
        os.fsync = self._before(os.fsync)
        real = os.fdopen
        os.fdopen = lambda *args, **named: _Watched(real(*args, **named), self)

    def operation(self, half: Callable[[], object] | None = None) -> None:
        """Count an operation. half: performs half of it before the process ends."""
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


class _Watched:
    """A file whose writes are counted: each is two operations, before it and in the middle of it."""

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

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


class Kills(Kind):
    """Every operation of every command, and for some a second kill at a random operation of the second attempt."""

    name = "kills"

    def __init__(self, scratch: Path, commands: Sequence[tuple[str, ...]] = COMMANDS):
        self.whole: dict[tuple[str, ...], Any] = {}
        self.points: list[tuple[tuple[str, ...], int, int]] = []  # command, operation, operations in all
        for number, arguments in enumerate(commands):
            folder = scratch / f"whole-{number}"
            folder.mkdir(parents=True)
            total = counted_operations(folder, *arguments)
            self.whole[arguments] = numbers_of(folder)
            self.points += [(arguments, at, total) for at in range(1, total + 1, EVERY.get(arguments, 1))]
        self.cases = len(self.points)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        arguments, at, total = self.points[number]
        outside = Outside(folder / "outside")
        place = folder / "inside"
        place.mkdir()
        kills = [at, *([rng.randint(1, total)] if rng.random() < 0.3 else [])]
        result = CaseResult("same numbers", f"{' '.join(arguments[:3])} killed before operation {kills} of {total}")
        for attempt, kill in enumerate(kills):  # a second one may come after the end: less was left to do
            ended = command(*arguments, folder=place, before=Killer(kill).install)
            if ended.code not in (-signal.SIGKILL, 0) or (ended.code == 0 and attempt == 0):
                result.faults.append(f"it ended with {ended.code} instead of the kill: {ended.err[-300:]}")
        ended = command(*arguments, folder=place)
        result.faults += ended.faults() + outside.faults()
        if ended.code:
            result.faults.append(f"given again, it does not finish: {ended.err[-300:]}")
        elif (numbers := numbers_of(place)) != self.whole[arguments]:
            result.faults.append(f"changed number: {difference(self.whole[arguments], numbers)}")
        result.faults += [f"left behind: {path.name}" for path in place.rglob("*") if _leftover(path)]
        return result


def counted_operations(folder: Path, *arguments: str) -> int:
    """Carries out a command, and returns the number of its file operations."""
    count = folder.with_name(f"{folder.name}.operations")
    ended = command(*arguments, folder=folder, before=Killer(0, count).install)
    assert ended.code == 0, ended.err
    return int(count.read_text())


def difference(expected: Any, result: Any) -> str:
    """The first place where two results differ."""
    if isinstance(expected, dict) and isinstance(result, dict):
        for key in {**expected, **result}:
            if expected.get(key) != result.get(key):
                return f"{key}.{difference(expected.get(key), result.get(key))}"
    return f" {str(expected)[:80]} became {str(result)[:80]}"


def _leftover(path: Path) -> bool:
    return path.name.endswith(".tmp") or path.name == "checkpoints"
