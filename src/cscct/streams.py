"""Protected standard streams: a closed pipe, a full disk or a closed stream does not end a run."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TextIO


class _Unbreakable(io.FileIO):
    """Standard stream that discards data that cannot be written and keeps the first error."""

    error: OSError | None = None

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.error = self.error or error
            return memoryview(data).nbytes  # type: ignore[arg-type]


def protect_streams() -> None:
    """Replace the standard streams by streams whose writes never fail.

    The file descriptors of closed streams are redirected to the null device. Otherwise the next opened file would get
    such a descriptor, and output would be written to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if os.name != "posix":  # the console is not a plain file on other systems
        return
    if sys.stdout is sys.__stdout__:  # otherwise the output is captured
        sys.stdout = _protected(sys.stdout, 1, "replace")  # replaces characters that the terminal cannot encode
    if sys.stderr is sys.__stderr__:
        sys.stderr = _protected(sys.stderr, 2, "backslashreplace")


def _protected(stream: TextIO | None, number: int, errors: str) -> io.TextIOWrapper:
    raw = _Unbreakable(number, "w", closefd=False)
    encoding = stream.encoding if stream is not None else "utf-8"
    lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=lines)


def output_error() -> str | None:
    """Return why output was lost, or None. A reader that closes the pipe early, such as `head`, is not an error."""
    if sys.stdout is None:
        return None
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = raw.error if isinstance(raw, _Unbreakable) else None
    return None if error is None or error.errno == errno.EPIPE else error.strerror


def is_follower() -> bool:
    """Return whether this process has a rank other than 0. Such a process displays nothing."""
    rank = os.environ.get("RANK") or max(os.environ.get("LOCAL_RANK", "0"), os.environ.get("NODE_RANK", "0"))
    return rank != "0"
