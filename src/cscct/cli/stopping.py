"""Ctrl-C: the first asks for a stop at the next step, the second ends at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import Interrupted

if TYPE_CHECKING:
    from ..data.registry import Progress

GRACE_SECONDS = 2.0  # in which this process has to end by itself after a second Ctrl-C
AT_ONCE = "Stopped at once. What the last checkpoint holds is not lost: `cscct resume RUN_DIR` goes on."


@contextmanager
def stop_on_request(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Ctrl-C or SIGTERM asks for a stop at the next step; a second Ctrl-C does not wait for it."""
    asked: list[int] = []

    def hear(number: int, _: object) -> None:
        asked.append(number)
        if len(asked) == 1:
            say("Stopping after this step, with a checkpoint (Ctrl-C again: at once, without) ...")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _watch_signals():
            yield lambda: bool(asked)
    except KeyboardInterrupt as error:
        raise Interrupted(AT_ONCE) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watch_signals() -> Iterator[None]:
    """Ends this process after a second Ctrl-C even where Python hears no signals, as in a wait for other processes."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_after_second_interrupt, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()  # which ends the thread, too


def _end_after_second_interrupt(reader: socket.socket) -> None:
    heard = b""
    while signal.SIGINT not in heard[1:]:
        numbers = reader.recv(16)
        if not numbers:
            return
        heard += bytes(one for one in numbers if one in (signal.SIGINT, signal.SIGTERM))
    time.sleep(GRACE_SECONDS)
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display hides it
    sys.stderr.write(f"{show_cursor}{AT_ONCE}\n")
    sys.stderr.flush()
    os._exit(130)


def interruptible(stop: Callable[[], bool], progress: Progress) -> Progress:
    """Progress of reading data, which is broken off when a stop is asked for."""

    def go_on(what: str, done: int, total: int) -> None:
        if stop():
            raise Interrupted(f"Stopped while {what}, before any training. Give the same command again.")
        progress(what, done, total)

    return go_on


@contextmanager
def stoppable(sentence: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the work at once, with code 130 and a sentence that is made then."""

    def hear(*_: object) -> None:
        raise KeyboardInterrupt

    # Ctrl-C too: a process that a shell started in the background would not hear it.
    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(sentence()) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
