"""Execution of a command in a fork of this process, with a time limit, captured output, and a check that files outside
of its folder do not change."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import resource
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LIMIT = 60.0  # seconds, after which a command counts as hanging; the longest takes a few
MEMORY = 8 << 30  # bytes of address space, to protect the machine
COMMAND = str(Path(__file__).with_name("start.py"))  # a file, because `--devices 2` starts it again
MESSAGE_PREFIXES = ("error: ", "Stopped")


@dataclass(frozen=True)
class CommandResult:
    """Result of a command. code: exit code; None after a timeout, negative after a signal."""

    description: str
    code: int | None
    stdout: str
    stderr: str

    @property
    def has_message(self) -> bool:
        """Whether the command failed with an error message."""
        return self.code in (1, 2)

    def faults(self) -> list[str]:
        """Return faults that are not permitted for any input."""
        result = []
        if self.code is None:
            result.append("hang")
        elif self.code < 0:
            result.append(f"crash ({signal.Signals(-self.code).name})")
        elif self.code not in (0, 1, 2):
            result.append(f"exit code {self.code}")
        elif self.code and not any(line.startswith(MESSAGE_PREFIXES) for line in self.stderr.splitlines()):
            result.append("no message")
        if "Traceback (most recent call last)" in self.stdout + self.stderr:
            result.append("traceback")
        return [f"{fault}: {self.description[:80]}: {self.stderr.strip()[-400:]}" for fault in result]


@dataclass
class CaseResult:
    """Result of a case. outcome: category for the counts. detail: description of the case."""

    outcome: str
    detail: str
    faults: list[str] = field(default_factory=list)


class Kind:
    """A kind of attack."""

    name: str
    cases: int  # number of cases of a complete attack

    def __init__(self, scratch: Path):
        """Prepare the attack. scratch: folder for files that all cases share; it does not exist yet."""

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        """Run a case in an empty folder."""
        raise NotImplementedError


def result_of(steps: Sequence[CommandResult], outside: Outside, outcome: str, detail: str) -> CaseResult:
    """Return the result of several commands. outcome: category if the first command succeeded."""
    faults = [fault for completed in steps for fault in completed.faults()] + outside.faults()
    return CaseResult("rejected with a message" if steps[0].code else outcome, detail, faults)


def preload() -> None:
    """Import everything that commands need, so that forks start fast, and parse the digits once.

    Files are not synchronised to disk: this matters if the power fails, not if a process ends.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.fsync = lambda descriptor: None
    import matplotlib.pyplot
    import PIL.Image
    import rich.progress
    import safetensors.torch
    import sklearn.cluster
    import sklearn.datasets
    import sklearn.manifold
    import torch
    import torch._dynamo  # used by optimisers

    import cscct.api
    import cscct.classifier.estimator
    import cscct.classifier.export
    import cscct.classifier.folder
    import cscct.cli
    import cscct.cli.classifier
    import cscct.cli.deployment
    import cscct.cli.predicting
    import cscct.cli.versions
    import cscct.reporting
    import cscct.runs.runner
    import cscct.studies.execution

    PIL.Image.init()
    matplotlib.use("agg")
    torch.set_num_threads(1)
    if not hasattr(sklearn.datasets.load_digits, "cache_clear"):
        sklearn.datasets.load_digits = functools.cache(sklearn.datasets.load_digits)
        sklearn.datasets.load_digits()
    assert all((rich.progress, safetensors.torch, torch._dynamo))
    assert all((cscct.api, cscct.cli, cscct.reporting, cscct.studies.execution))


def run_command(
    *arguments: str, folder: Path, limit: float = LIMIT, before: Callable[[], None] | None = None
) -> CommandResult:
    """Run `cscct` with these arguments in a folder. before: called first in the child process."""
    return start_command(*arguments, folder=folder, before=before).wait(limit)


def _main(arguments: Sequence[str], before: Callable[[], None] | None) -> Callable[[], None]:
    def main() -> None:
        from cscct.cli import main

        sys.argv = [COMMAND, *arguments]
        if before is not None:
            before()
        main()

    return main


def run_function(function: Callable[[], None], what: str, folder: Path, limit: float = LIMIT) -> CommandResult:
    """Run a function in a child process. Its exceptions become tracebacks in the output."""
    return ChildProcess(function, what, folder).wait(limit)


class ChildProcess:
    """A function that runs in a child process with its own process group."""

    def __init__(self, function: Callable[[], None], what: str, folder: Path):
        self.description = what
        self.stdout, self.stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.pid = os.fork()
        if self.pid == 0:
            _child(function, folder, self.stdout.fileno(), self.stderr.fileno())

    def send(self, number: int) -> None:
        """Send a signal to the process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def output(self) -> str:
        """Return the content of standard output so far."""
        return os.pread(self.stdout.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait(self, limit: float = LIMIT) -> CommandResult:
        """Wait for the end of the process, and kill the rest of its process group."""
        code = _wait(self.pid, limit)
        self.send(signal.SIGKILL)
        texts = []
        for file in (self.stdout, self.stderr):
            with file:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return CommandResult(self.description, code, *texts)


def start_command(*arguments: str, folder: Path, before: Callable[[], None] | None = None) -> ChildProcess:
    """Start `cscct` with these arguments in a folder, without waiting for it."""
    return ChildProcess(_main(arguments, before), " ".join(["cscct", *arguments]), folder)


def _child(function: Callable[[], None], folder: Path, out: int, err: int) -> None:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        set_stream("stdout", open(1, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        set_stream("stderr", open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):
                stream.flush()
        os._exit(code)


def set_stream(name: str, stream: IO[str] | None) -> None:
    """Replace a standard stream of Python; None stands for a closed one."""
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _wait(child: int, limit: float) -> int | None:
    end = time.monotonic() + limit
    pause = 0.002
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


# Names of files that the package writes or removes: writing through a link would change them.
PRECIOUS = ("notes.txt", "result.json", "checkpoint-000001.json", "000.safetensors", "index.html", "figures/a.png")


class Outside:
    """Files next to the folder of a case, which must not change."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in PRECIOUS:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"precious {name}\n")
        self.before = fingerprint(folder)

    def faults(self) -> list[str]:
        """Return a message for each file that was changed, removed or added."""
        after = fingerprint(self.folder)
        names = sorted(name for name in {*self.before, *after} if self.before.get(name) != after.get(name))
        return [f"changed file outside: {name}" for name in names]


def fingerprint(folder: Path) -> dict[str, str]:
    """Return type, permissions and content of everything in a folder, without following links."""
    result = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else ""
        if stat.S_ISREG(status.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        result[str(path.relative_to(folder))] = f"{status.st_mode:o} {content}"
    return result
