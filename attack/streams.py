"""Output streams that are closed, broken or full, and signals during a run."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kills import difference
from small_runs import COMPARE, LUCIR, numbers_of
from watch import CaseResult, Kind, Outside, run_command, set_stream

PART = 3  # cases per disturbance
STREAMS = ("stdin", "stdout", "stderr")
LOUD = tuple(argument for argument in LUCIR if argument != "--quiet")


def _closed(*streams: int) -> Callable[[], None]:
    def before() -> None:
        for stream in streams:
            os.close(stream)
            set_stream(STREAMS[stream], None)

    return before


def _broken(stream: int) -> Callable[[], None]:
    """Replace a stream by a pipe without a reader."""

    def before() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        _redirect(writing, stream)

    return before


def _full(stream: int) -> Callable[[], None]:
    """Replace a stream by a file on a full disk."""

    def before() -> None:
        _redirect(os.open("/dev/full", os.O_WRONLY), stream)

    return before


def _redirect(descriptor: int, stream: int) -> None:
    """Redirect a standard stream to a file descriptor."""
    os.dup2(descriptor, stream)
    set_stream(STREAMS[stream], os.fdopen(stream, "w", closefd=False))


def _signals(*numbers: int, after: float) -> Callable[[], None]:
    """Send signals to this process, each after a delay."""

    def send() -> None:
        for number in numbers:
            time.sleep(after)
            os.kill(os.getpid(), number)

    return lambda: threading.Thread(target=send, daemon=True).start()


BEFORE: dict[str, Callable[[random.Random], Callable[[], None]]] = {
    "closed stdout": lambda rng: _closed(1),
    "closed stderr": lambda rng: _closed(2),
    "closed input and output": lambda rng: _closed(0, 1, 2),
    "broken stdout": lambda rng: _broken(1),
    "broken stderr": lambda rng: _broken(2),
    "full stdout": lambda rng: _full(1),
    "full stderr": lambda rng: _full(2),
    "interrupted": lambda rng: _signals(signal.SIGINT, after=rng.uniform(0.01, 0.4)),
    "interrupted twice": lambda rng: _signals(signal.SIGINT, signal.SIGINT, after=rng.uniform(0.01, 0.2)),
    "terminated": lambda rng: _signals(signal.SIGTERM, after=rng.uniform(0.01, 0.4)),
}


class Streams(Kind):
    """A disturbed command, repeated without disturbance: the results are those of an undisturbed command."""

    name, cases = "streams", PART * 2 * len(BEFORE)

    def __init__(self, scratch: Path):
        self.expected = {}
        for number, arguments in enumerate((LOUD, COMPARE)):
            folder = scratch / str(number)
            folder.mkdir(parents=True)
            completed = run_command(*arguments, folder=folder)
            assert completed.code == 0, completed.stderr
            self.expected[arguments] = numbers_of(folder)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        way = list(BEFORE)[number % len(BEFORE)]
        arguments = LOUD if number // len(BEFORE) % 2 == 0 else COMPARE
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        workdir.mkdir()
        first = run_command(*arguments, folder=workdir, before=BEFORE[way](rng))
        result = CaseResult("same numbers", f"{arguments[0]}: {way}: exit code {first.code}")
        expected = (
            "exit code 130",
            "no message",
            "crash (SIGTERM)",
        )  # the last: no handler was installed yet
        result.faults = [fault for fault in first.faults() if not fault.startswith(expected)]
        second = run_command(*arguments, folder=workdir)
        result.faults += second.faults() + outside.faults()
        if second.code == 0 and (numbers := numbers_of(workdir)) != self.expected[arguments]:
            result.faults.append(f"changed number: {difference(self.expected[arguments], numbers)}")
        elif second.code:
            result.faults.append(f"the repeated command fails: {second.stderr[-300:]}")
        return result
