"""How much a request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What is above these is refused with a 4xx answer (or 503, when too much happens at once)."""

    file_bytes: int = 25 * MEGABYTE
    request_bytes: int = 100 * MEGABYTE
    text_bytes: int = 100_000  # a request without files
    files: int = 50  # in a request
    pixels: int = 52_000_000  # of an image; the largest needs four bytes a pixel while it is decoded
    side: int = 20_000  # width or height of an image
    name_length: int = 100
    staged_files: int = 5_000
    staged_bytes: int = 2_000 * MEGABYTE
    running: int = 2  # requests whose images are decoded and classified at the same time
    waiting: int = 30  # requests with images that are accepted beyond these
    upload_seconds: float = 120.0
