"""Changes of a model that are killed at each file operation, meet a full disk, or are made by two processes at once."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cscct.errors import RunFailed, UserError
from kills import Killer
from model_folders import (
    CHANGES,
    LEARN,
    PREDICT,
    changes_of,
    checked,
    draw_images,
    make_model,
    predictions,
    unused_files,
)
from watch import CaseResult, Ended, Kind, Outside, command, guarded, started

EXPORT = ("export", "model", "--to", "torchscript", "--out", "exported.pt", "--quiet")
NEXT = ("learn", "model", "third", "--quiet")  # a later change, which removes what was left behind
FULL_EVERY = 3  # operations: a full disk stays full, so neighbours are alike
MERGE = "merge"
TWO = {
    "two classes": (("learn", "model", "second", "--quiet"), ("learn", "model", "third", "--quiet")),
    "learn and forget": (("learn", "model", "second", "--quiet"), ("forget", "model", "green", "--quiet")),
    "learn and undo": (("learn", "model", "third", "--quiet"), ("undo", "model", "--quiet")),
    "learn and purge": (("learn", "model", "second", "--quiet"), CHANGES["purge"]),
    "two new models": (LEARN, LEARN),
}


def _change(name: str, arguments: tuple[str, ...], folder: Path, before: Callable[[], None] = lambda: None) -> Ended:
    """A change, as a command or, where there is none, as the server makes it."""
    if name != MERGE:
        return command(*arguments, folder=folder, before=before)

    def merge() -> None:
        from cscct.classifier.photo_changes import merge_classes

        before()
        try:
            merge_classes(Path("model"), ["red"], "green")
        except (UserError, RunFailed, OSError) as error:  # a response with this text
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)

    return guarded(merge, MERGE, folder)


class FullDisk(Killer):
    """From some operation on, nothing can be written. at: 0 only counts."""

    def operation(self, half: Callable[[], object] | None = None) -> None:
        """One more, which may fail."""
        if self.busy:
            return
        self.count += 1
        if self.at and self.count >= self.at:
            if half is not None:
                half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("os.remove", "os.rmdir", "fcntl.flock"):  # these need no space
            super()._event(event, arguments)


class ChangedModels(Kind):
    """Every operation of every change, with a kill and with a full disk, and pairs of changes at the same time."""

    name = "model changes"
    pairs = 40

    def __init__(self, scratch: Path, changes: dict[str, tuple[str, ...]] | None = None):
        self.source, self.empty = scratch / "model", scratch / "empty"
        for folder in (self.source, self.empty):
            folder.mkdir(parents=True)
        make_model(self.source)
        draw_images(self.empty)
        self.before = predictions(self.source)
        own = {"create": LEARN, **changes_of(self.source / "model"), MERGE: (), "export": EXPORT}
        self.changes = own if changes is None else changes
        self.after: dict[str, str] = {}
        self.points: list[tuple[str, str, int]] = []
        for name, arguments in self.changes.items():
            place = scratch / f"whole-{name}"
            shutil.copytree(self._start(name), place)
            count = scratch / f"{name}.operations"
            checked(_change(name, arguments, place, before=Killer(0, count).install))
            self.after[name] = predictions(place)
            operations = range(1, int(count.read_text()) + 1)
            self.points += [("kill", name, at) for at in operations]
            self.points += [("full", name, at) for at in operations[::FULL_EVERY]]
        if changes is None:
            self.points += [("two", pair, number) for number in range(self.pairs // len(TWO)) for pair in TWO]
        self.cases = len(self.points)

    def _start(self, name: str) -> Path:
        return self.empty if name in ("create", "two new models") else self.source

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        how, name, at = self.points[number]
        outside, place = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self._start(name), place)
        result = CaseResult("", f"{name}: {how} {at}")
        if how == "two":
            self._together(result, name, place)
        else:
            self._interrupted(result, how, name, at, place)
        result.faults += outside.faults()
        return result

    def _interrupted(self, result: CaseResult, how: str, name: str, at: int, place: Path) -> None:
        arguments = self.changes[name]
        before = Killer(at).install if how == "kill" else FullDisk(at).install
        ended = _change(name, arguments, place, before=before)
        if how == "kill" and ended.code != -signal.SIGKILL:
            result.faults.append(f"it ended with {ended.code} instead of the kill: {ended.err[-300:]}")
        if how == "full":  # of the last operations, removing what is not needed, the failure does not matter
            result.faults += ended.faults()
        state = self._state(place, name, result)
        result.outcome = f"{state} the change"
        if state == "before" or name == "export":
            result.faults += self._given_again(_change(name, arguments, place))
            if self._state(place, name, result) != "after" and name != "export":
                result.faults.append("given again, it does not finish")
        ended = command(*NEXT, folder=place)
        if ended.code:
            result.faults.append(f"no further change is possible: {ended.err[-300:]}")
        else:
            result.faults += [f"left behind: {file}" for file in unused_files(place / "model")]

    def _given_again(self, ended: Ended) -> list[str]:
        return ended.faults() + ([f"given again, it does not finish: {ended.err[-300:]}"] if ended.code else [])

    def _state(self, place: Path, name: str, result: CaseResult) -> str:
        """Whether the model is the one before or after the change; nothing else may be seen."""
        ended = command(*PREDICT, folder=place)
        if name == "create" and ended.code in (0, 2):
            return "before" if ended.code else "after"
        if ended.code == 0 and ended.out == self.after[name] and self.after[name] != self.before:
            return "after"
        if ended.code == 0 and ended.out == self.before:
            return "before" if not self._is_other_version(place, name) else "after"
        result.faults.append(f"neither before nor after: {ended.err[-200:]}{ended.out[:100]}")
        return "between"

    def _is_other_version(self, place: Path, name: str) -> bool:
        """Where predictions do not tell: the number of the current version, or the exported file."""
        if name == "export":
            return (place / "exported.pt").is_file()
        from cscct.classifier.store import ModelFolder

        return ModelFolder(place / "model").current() != ModelFolder(self.source / "model").current()

    def _together(self, result: CaseResult, pair: str, place: Path) -> None:
        processes = [started(*arguments, folder=place) for arguments in TWO[pair]]
        ends = [process.ended() for process in processes]
        result.faults += [fault for ended in ends for fault in ended.faults()]
        succeeded = sum(ended.code == 0 for ended in ends)
        result.outcome = f"{succeeded} of 2 succeeded"
        if not succeeded:
            result.faults.append("none of two succeeded")
        ended = command(*PREDICT, folder=place)
        result.faults += ended.faults()
        ended = command(*NEXT, folder=place)
        if ended.code:
            result.faults.append(f"no further change is possible: {ended.err[-300:]}")
        else:
            result.faults += [f"left behind: {file}" for file in unused_files(place / "model")]
