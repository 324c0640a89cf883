"""Standard streams that may break: a reader that went away, a full disk or a closed stream ends no run."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TextIO


class _Unbreakable(io.FileIO):
    """A stream of this process. What cannot be written is dropped, and the first reason kept."""

    error: OSError | None = None

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.error = self.error or error
            return memoryview(data).nbytes  # type: ignore[arg-type]


def protect_streams() -> None:
    """Let writing to the standard streams never fail, and closed ones lead nowhere.

    The numbers of closed streams are taken, too: a file of a run that got one would be written to by mistake.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if os.name != "posix":  # elsewhere a console is no plain file
        return
    if sys.stdout is sys.__stdout__:  # else somebody catches what is printed
        sys.stdout = _protected(sys.stdout, 1, "replace")  # a terminal without the sign ± gets a question mark
    if sys.stderr is sys.__stderr__:
        sys.stderr = _protected(sys.stderr, 2, "backslashreplace")


def _protected(stream: TextIO | None, number: int, errors: str) -> io.TextIOWrapper:
    raw = _Unbreakable(number, "w", closefd=False)
    encoding = stream.encoding if stream is not None else "utf-8"
    lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=lines)


def output_error() -> str | None:
    """Why some of the output was lost, if it was. A reader that went away, as `head` does, had enough."""
    if sys.stdout is None:
        return None
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = raw.error if isinstance(raw, _Unbreakable) else None
    return None if error is None or error.errno == errno.EPIPE else error.strerror
