"""One command under guard: run in a fork of this process, with a time limit, what it wrote kept, and files that it must
not touch compared before and after."""

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

LIMIT = 60.0  # seconds, after which a command hangs; the longest takes a few
MEMORY = 8 << 30  # bytes of address space, so that what asks for much more does not disturb the machine
COMMAND = str(Path(__file__).with_name("start.py"))  # a file, because `--devices 2` starts it again
SENTENCE = ("error: ", "Stopped")


@dataclass(frozen=True)
class Ended:
    """How a command ended. code: None if it did not end in time, negative if a signal ended it."""

    what: str
    code: int | None
    out: str
    err: str

    @property
    def has_message(self) -> bool:
        """It refused, with a sentence."""
        return self.code in (1, 2)

    def faults(self) -> list[str]:
        """What must never happen, whatever the input."""
        result = []
        if self.code is None:
            result.append("hang")
        elif self.code < 0:
            result.append(f"crash ({signal.Signals(-self.code).name})")
        elif self.code not in (0, 1, 2):
            result.append(f"exit code {self.code}")
        elif self.code and not any(line.startswith(SENTENCE) for line in self.err.splitlines()):
            result.append("no sentence")
        if "Traceback (most recent call last)" in self.out + self.err:
            result.append("traceback")
        return [f"{fault}: {self.what[:80]}: {self.err.strip()[-400:]}" for fault in result]


@dataclass
class CaseResult:
    """Result of a case. outcome: category for the counts. detail: description of the case."""

    outcome: str
    detail: str
    faults: list[str] = field(default_factory=list)


class Kind:
    """One way to attack."""

    name: str
    cases: int  # that a whole attack has

    def __init__(self, scratch: Path):
        """scratch: folder for files that all cases share; it does not exist yet."""

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        """Run a case in an empty folder."""
        raise NotImplementedError


def result_of(steps: Sequence[Ended], outside: Outside, outcome: str, detail: str) -> CaseResult:
    """Result of several commands. outcome: category if the first command succeeded."""
    faults = [fault for ended in steps for fault in ended.faults()] + outside.faults()
    return CaseResult("refused in a sentence" if steps[0].code else outcome, detail, faults)


def preload() -> None:
    """Import everything that commands need, so that a fork begins at once, and parse the digits only once.

    Synchronising files does nothing here: it matters when the power fails, not when a process ends.
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


def command(*arguments: str, folder: Path, limit: float = LIMIT, before: Callable[[], None] | None = None) -> Ended:
    """`cscct WORDS` in a folder. before: called in the child first, to make it fail in some way."""
    return started(*arguments, folder=folder, before=before).ended(limit)


def _main(arguments: Sequence[str], before: Callable[[], None] | None) -> Callable[[], None]:
    def main() -> None:
        from cscct.cli import main

        sys.argv = [COMMAND, *arguments]
        if before is not None:
            before()
        main()

    return main


def guarded(function: Callable[[], None], what: str, folder: Path, limit: float = LIMIT) -> Ended:
    """A function in a child of this process, as a command would run it; its exceptions are tracebacks."""
    return Started(function, what, folder).ended(limit)


class Started:
    """A function that runs in a child of this process, in a process group of its own."""

    def __init__(self, function: Callable[[], None], what: str, folder: Path):
        self.what = what
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.process = os.fork()
        if self.process == 0:
            _child(function, folder, self.out.fileno(), self.err.fileno())

    def send(self, number: int) -> None:
        """A signal to it and the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, number)

    def written(self) -> str:
        """What it has written to standard output so far."""
        return os.pread(self.out.fileno(), 1 << 20, 0).decode(errors="replace")

    def ended(self, limit: float = LIMIT) -> Ended:
        """Waits for the end; what it started and left behind is ended too."""
        code = _wait(self.process, limit)
        self.send(signal.SIGKILL)
        texts = []
        for file in (self.out, self.err):
            with file:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return Ended(self.what, code, *texts)


def started(*arguments: str, folder: Path, before: Callable[[], None] | None = None) -> Started:
    """`cscct WORDS` in a folder, not waited for."""
    return Started(_main(arguments, before), " ".join(["cscct", *arguments]), folder)


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
        _renew_threads()
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


def _renew_threads() -> None:
    """Replace the thread pool of torch, which a fork leaves unusable, before several threads try to at once."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def set_stream(name: str, stream: IO[str] | None) -> None:
    """As if the process had been started with this stream; None: with it closed."""
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


# Names that the software writes or removes, so that a link to the folder would show.
PRECIOUS = ("notes.txt", "result.json", "checkpoint-000001.json", "000.safetensors", "index.html", "figures/a.png")


class Outside:
    """Files beside the folder of a case that nothing may change."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in PRECIOUS:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"precious {name}\n")
        self.before = fingerprint(folder)

    def faults(self) -> list[str]:
        """A sentence for each file that was changed, removed or added since."""
        after = fingerprint(self.folder)
        names = sorted(name for name in {*self.before, *after} if self.before.get(name) != after.get(name))
        return [f"changed file outside: {name}" for name in names]


def fingerprint(folder: Path) -> dict[str, str]:
    """Kind, permissions and content of everything in a folder, links not followed."""
    result = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else ""
        if stat.S_ISREG(status.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        result[str(path.relative_to(folder))] = f"{status.st_mode:o} {content}"
    return result
