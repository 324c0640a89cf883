"""Limits of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ...errors import UserError
from ...text import suggest

MEGABYTE = 1_000_000
MAXIMUM = 10**15


@dataclass(frozen=True)
class Limits:
    """Limits of requests. Exceeding them results in a 4xx response, or 503 for too many concurrent requests.

    Attributes:
        file_bytes: Maximum size of a file.
        request_bytes: Maximum size of a request with files.
        text_bytes: Maximum size of a request without files.
        files: Maximum number of files in a request.
        pixels: Maximum number of pixels of an image; by default that of all commands, which larger values do not
            change. Decoding needs four bytes per pixel.
        side: Maximum width and height of an image.
        name_length: Maximum length of a class name.
        staged_files: Maximum number of staged photos.
        staged_bytes: Maximum total size of staged photos.
        running: Number of requests whose images are processed at the same time.
        waiting: Number of further requests with images that are queued.
        per_client: Number of requests with images that a client may have in progress.
        upload_seconds: Maximum duration of an upload.
        idle_seconds: Maximum time without data while a request is received or a response is sent.
        header_seconds: Maximum time until the headers of a request are received.
        slow_bytes: Uploads slower than this, in bytes per second, are dropped if others need their place. Clients that
            read a response slower than this are disconnected.
        slow_seconds: Uploads younger than this are not dropped.
        connections: Maximum number of connections.
        connections_per_client: Maximum number of connections of a client.
    """

    file_bytes: int = 100 * MEGABYTE
    request_bytes: int = 200 * MEGABYTE
    text_bytes: int = 100_000
    files: int = 50
    pixels: int = 89_478_485
    side: int = 65_535
    name_length: int = 100
    staged_files: int = 5_000
    staged_bytes: int = 2_000 * MEGABYTE
    running: int = 2
    waiting: int = 30
    per_client: int = 16
    upload_seconds: float = 120.0
    idle_seconds: float = 10.0
    header_seconds: float = 10.0
    slow_bytes: float = 50_000.0
    slow_seconds: float = 2.0
    connections: int = 640
    connections_per_client: int = 320


def parse_limits(values: Mapping[str, str]) -> Limits:
    """Return the default limits with other values.

    Args:
        values: Texts of numbers, by the names of the attributes of `Limits`.

    Raises:
        UserError: A name or a value is invalid.
    """
    limits = Limits()
    names = [field.name for field in fields(Limits)]
    for name, text in values.items():
        if name not in names:
            raise UserError(f"There is no limit {name!r}{suggest(name, names)}. Limits: {', '.join(names)}.")
        kind = type(getattr(limits, name))
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number <= MAXIMUM:
            raise UserError(
                f"The limit {name} must be a positive {'integer' if kind is int else 'number'} of at most {MAXIMUM:,}, "
                f"not {text[:100]!r}."
            )
        limits = replace(limits, **{name: number})
    return limits
