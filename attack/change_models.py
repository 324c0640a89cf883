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
from watch import CaseResult, CommandResult, Kind, Outside, run_command, run_function, start_command

EXPORT = ("export", "model", "--to", "torchscript", "--out", "exported.pt", "--quiet")
NEXT = ("learn", "model", "third", "--quiet")  # a later change, which removes leftover files
MERGE = "merge"
# Operations from one case to the next; a seed selects one of them. A full disk stays full, so consecutive operations
# give similar cases, and so do kills of changes that are stored in the same way as others.
FULL_EVERY = 6
ALIKE = ("create", "purge", "keep", "move a photo", "remove a photo", "confirm a photo", MERGE)
KILL_EVERY = dict.fromkeys(ALIKE, 2)
TWO = {
    "two classes": (("learn", "model", "second", "--quiet"), ("learn", "model", "third", "--quiet")),
    "learn and forget": (("learn", "model", "second", "--quiet"), ("forget", "model", "green", "--quiet")),
    "learn and undo": (("learn", "model", "third", "--quiet"), ("undo", "model", "--quiet")),
    "learn and purge": (("learn", "model", "second", "--quiet"), CHANGES["purge"]),
    "two new models": (LEARN, LEARN),
}


def _change(
    name: str, arguments: tuple[str, ...], folder: Path, before: Callable[[], None] = lambda: None
) -> CommandResult:
    """Make a change with a command or, if there is none, with the function that the server calls."""
    if name != MERGE:
        return run_command(*arguments, folder=folder, before=before)

    def merge() -> None:
        from cscct.classifier.photo_changes import merge_classes

        before()
        try:
            merge_classes(Path("model"), ["red"], "green")
        except (UserError, RunFailed, OSError) as error:  # a response with this text
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)

    return run_function(merge, MERGE, folder)


class FullDisk(Killer):
    """From an operation on, all writing fails. at: number of the operation; 0 only counts."""

    def operation(self, half: Callable[[], object] | None = None) -> None:
        """Count an operation, and fail if the disk is full."""
        if self.busy:
            return
        self.count += 1
        if self.at and self.count >= self.at:
            if half is not None:
                half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("os.remove", "os.rmdir", "fcntl.flock"):  # operations that need no space
            super()._event(event, arguments)


class ChangedModels(Kind):
    """Operations of each change with a kill and with a full disk, and pairs of simultaneous changes."""

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
        self.operations: dict[str, int] = {}
        self.points: list[tuple[str, str, int]] = []
        for name, arguments in self.changes.items():
            workdir = scratch / f"whole-{name}"
            shutil.copytree(self._start(name), workdir)
            count = scratch / f"{name}.operations"
            checked(_change(name, arguments, workdir, before=Killer(0, count).install))
            self.after[name] = predictions(workdir)
            self.operations[name] = int(count.read_text())
            for how, every in (("kill", KILL_EVERY.get(name, 1)), ("full", FULL_EVERY)):
                self.points += [(how, name, at) for at in range(1, self.operations[name] + 1, every)]
        if changes is None:
            self.points += [("two", pair, number) for number in range(self.pairs // len(TWO)) for pair in TWO]
        self.cases = len(self.points)

    def _start(self, name: str) -> Path:
        return self.empty if name in ("create", "two new models") else self.source

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        how, name, at = self.points[number]
        if how != "two":
            every = KILL_EVERY.get(name, 1) if how == "kill" else FULL_EVERY
            at = min(at + rng.randrange(every), self.operations[name])
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self._start(name), workdir)
        result = CaseResult("", f"{name}: {how} {at}")
        if how == "two":
            self._together(result, name, workdir)
        else:
            self._interrupted(result, how, name, at, workdir)
        result.faults += outside.faults()
        return result

    def _interrupted(self, result: CaseResult, how: str, name: str, at: int, workdir: Path) -> None:
        arguments = self.changes[name]
        before = Killer(at).install if how == "kill" else FullDisk(at).install
        completed = _change(name, arguments, workdir, before=before)
        if how == "kill" and completed.code != -signal.SIGKILL:
            result.faults.append(f"exit code {completed.code} instead of a kill: {completed.stderr[-300:]}")
        if how == "full":  # the last operations, which remove unused files, may fail
            result.faults += completed.faults()
        state = self._state(workdir, name, result)
        result.outcome = f"{state} the change"
        if state == "before" or name == "export":
            result.faults += self._repetition_faults(_change(name, arguments, workdir))
            if self._state(workdir, name, result) != "after" and name != "export":
                result.faults.append("the repeated command fails")
        completed = run_command(*NEXT, folder=workdir)
        if completed.code:
            result.faults.append(f"no further change is possible: {completed.stderr[-300:]}")
        else:
            result.faults += [f"leftover file: {file}" for file in unused_files(workdir / "model")]

    def _repetition_faults(self, completed: CommandResult) -> list[str]:
        return completed.faults() + (
            [f"the repeated command fails: {completed.stderr[-300:]}"] if completed.code else []
        )

    def _state(self, workdir: Path, name: str, result: CaseResult) -> str:
        """Return whether the model is in its state before or after the change. Any other state is a fault."""
        completed = run_command(*PREDICT, folder=workdir)
        if name == "create" and completed.code in (0, 2):
            return "before" if completed.code else "after"
        if completed.code == 0 and completed.stdout == self.after[name] and self.after[name] != self.before:
            return "after"
        if completed.code == 0 and completed.stdout == self.before:
            return "before" if not self._is_other_version(workdir, name) else "after"
        result.faults.append(f"neither before nor after: {completed.stderr[-200:]}{completed.stdout[:100]}")
        return "between"

    def _is_other_version(self, workdir: Path, name: str) -> bool:
        """Where predictions do not tell: the number of the current version, or the exported file."""
        if name == "export":
            return (workdir / "exported.pt").is_file()
        from cscct.classifier.store import ModelFolder

        return ModelFolder(workdir / "model").current() != ModelFolder(self.source / "model").current()

    def _together(self, result: CaseResult, pair: str, workdir: Path) -> None:
        processes = [start_command(*arguments, folder=workdir) for arguments in TWO[pair]]
        ends = [process.wait() for process in processes]
        result.faults += [fault for completed in ends for fault in completed.faults()]
        succeeded = sum(completed.code == 0 for completed in ends)
        result.outcome = f"{succeeded} of 2 succeeded"
        if not succeeded:
            result.faults.append("no process succeeded")
        completed = run_command(*PREDICT, folder=workdir)
        result.faults += completed.faults()
        completed = run_command(*NEXT, folder=workdir)
        if completed.code:
            result.faults.append(f"no further change is possible: {completed.stderr[-300:]}")
        else:
            result.faults += [f"leftover file: {file}" for file in unused_files(workdir / "model")]
