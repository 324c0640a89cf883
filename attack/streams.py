"""Output that cannot be written, signals, and an unreachable cluster."""

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
from watch import CaseResult, Kind, Outside, command, set_stream

PART = 3  # cases of each way
STREAMS = ("stdin", "stdout", "stderr")
LOUD = tuple(argument for argument in LUCIR if argument != "--quiet")


def _closed(*streams: int) -> Callable[[], None]:
    def before() -> None:
        for stream in streams:
            os.close(stream)
            set_stream(STREAMS[stream], None)

    return before


def _broken(stream: int) -> Callable[[], None]:
    """A pipe whose reader is gone."""

    def before() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        _redirect(writing, stream)

    return before


def _full(stream: int) -> Callable[[], None]:
    """A file on a full disk."""

    def before() -> None:
        _redirect(os.open("/dev/full", os.O_WRONLY), stream)

    return before


def _redirect(descriptor: int, stream: int) -> None:
    """As a program finds its streams that was started so."""
    os.dup2(descriptor, stream)
    set_stream(STREAMS[stream], os.fdopen(stream, "w", closefd=False))


def _signals(*numbers: int, after: float) -> Callable[[], None]:
    """Sent to the process by itself, some time after it began."""

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
    """Whatever becomes of the first attempt, the second ends with the numbers of a run that nothing disturbed."""

    name, cases = "streams", PART * 2 * len(BEFORE)

    def __init__(self, scratch: Path):
        self.whole = {}
        for number, arguments in enumerate((LOUD, COMPARE)):
            folder = scratch / str(number)
            folder.mkdir(parents=True)
            ended = command(*arguments, folder=folder)
            assert ended.code == 0, ended.err
            self.whole[arguments] = numbers_of(folder)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        way = list(BEFORE)[number % len(BEFORE)]
        arguments = LOUD if number // len(BEFORE) % 2 == 0 else COMPARE
        outside, place = Outside(folder / "outside"), folder / "inside"
        place.mkdir()
        first = command(*arguments, folder=place, before=BEFORE[way](rng))
        result = CaseResult("same numbers", f"{arguments[0]}: {way}: ended with {first.code}")
        expected = ("exit code 130", "no sentence", "crash (SIGTERM)")  # the last: before it could be asked to stop
        result.faults = [fault for fault in first.faults() if not fault.startswith(expected)]
        second = command(*arguments, folder=place)
        result.faults += second.faults() + outside.faults()
        if second.code == 0 and (numbers := numbers_of(place)) != self.whole[arguments]:
            result.faults.append(f"changed number: {difference(self.whole[arguments], numbers)}")
        elif second.code:
            result.faults.append(f"given again, it does not finish: {second.err[-300:]}")
        return result
