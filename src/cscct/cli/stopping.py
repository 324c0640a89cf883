"""Handling of Ctrl-C and SIGTERM: the first signal requests a stop, a second Ctrl-C ends the process."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import Interrupted

GRACE_SECONDS = 2.0  # between a second Ctrl-C and the forced end of this process
AT_ONCE = "Stopped immediately. Continue from the last checkpoint with `cscct resume RUN_DIR`."


@contextmanager
def stop_on_request(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a request to stop at the next step. A second Ctrl-C stops immediately.

    Args:
        say: Prints the message that confirms the request.

    Yields:
        Function that returns whether a stop is requested.
    """
    received: list[int] = []

    def handle(number: int, _: object) -> None:
        received.append(number)
        if len(received) == 1:
            say("Stopping after this step, with a checkpoint. Press Ctrl-C again to stop immediately, without one.")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _watch_signals():
            yield lambda: bool(received)
    except KeyboardInterrupt as error:
        raise Interrupted(AT_ONCE) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watch_signals() -> Iterator[None]:
    """End this process after a second Ctrl-C, even while Python handles no signals, as in a wait for a process."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_after_second_interrupt, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()  # ends the thread


def _end_after_second_interrupt(reader: socket.socket) -> None:
    received = b""
    while signal.SIGINT not in received[1:]:
        numbers = reader.recv(16)
        if not numbers:
            return
        received += bytes(number for number in numbers if number in (signal.SIGINT, signal.SIGTERM))
    time.sleep(GRACE_SECONDS)
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # hidden by live displays
    sys.stderr.write(f"{show_cursor}{AT_ONCE}\n")
    sys.stderr.flush()
    os._exit(130)


@contextmanager
def stoppable(message: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `Interrupted`, which ends the command with code 130.

    Args:
        message: Returns the message of the exception.
    """

    def handle(*_: object) -> None:
        raise KeyboardInterrupt

    # SIGINT needs a handler because shells start background processes with SIGINT ignored.
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(message()) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
