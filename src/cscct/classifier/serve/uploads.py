"""Uploaded files: spooled to disk, validated, and removed at the end of the request."""

from __future__ import annotations

import shutil
import time
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from python_multipart.exceptions import FormParserError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ...data.image_files import open_image, reason_of
from ...errors import UserError
from .limits import Limits


@dataclass(frozen=True)
class Upload:
    """An uploaded image file. Only its header has been validated; the image is not decoded yet.

    Attributes:
        path: Temporary file, removed at the end of the request.
        filename: File name sent by the client. For display only, never used as a path.
    """

    path: Path
    filename: str


@dataclass(frozen=True)
class Form:
    """Images and text fields of a multipart request."""

    uploads: list[Upload]
    fields: dict[str, str]


class _Parser(MultiPartParser):
    spool_max_size = 64 * 1024  # larger files are spooled to disk


class Transfer:
    """Progress of an upload.

    Args:
        client: Address of the client.
    """

    def __init__(self, client: str) -> None:
        self.client, self.started, self.bytes = client, time.monotonic(), 0
        self.scope = anyio.CancelScope()
        self.receiving = True

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Average number of bytes per second."""
        return self.bytes / max(self.seconds, 1e-3)

    async def counted(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the body, and count their bytes."""
        async for part in stream:
            self.bytes += len(part)
            yield part


@asynccontextmanager
async def receive_form(
    request: Request, limits: Limits, workers: anyio.CapacityLimiter, transfer: Transfer
) -> AsyncIterator[Form]:
    """Receive the files of the field `images` and the text fields of a request.

    Args:
        request: The request.
        limits: Limits of requests.
        workers: Limiter of the threads that process images.
        transfer: Its progress; cancelling its scope ends the upload.

    Raises:
        HTTPException: If the request is malformed, too large or too slow, or if a file is not a supported image.
    """
    form = None
    with transfer.scope:
        form = await _parse(request, limits, transfer)
    transfer.receiving = False
    if form is None:
        raise HTTPException(503, "The upload was too slow while others waited: try again later.", {"Retry-After": "1"})
    try:
        files = [value for value in form.getlist("images") if isinstance(value, UploadFile)]
        if not files:
            raise HTTPException(422, "The field `images` contains no file: send at least one image.")
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        with TemporaryDirectory(prefix="cscct-") as folder:
            uploads = await anyio.to_thread.run_sync(_save, files, Path(folder), limits, limiter=workers)
            yield Form(uploads, fields)
    finally:
        await form.close()


async def _parse(request: Request, limits: Limits, transfer: Transfer) -> FormData:
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise HTTPException(415, "Send the images as multipart/form-data, in the field `images`.")
    stream = transfer.counted(request.stream())
    parser = _Parser(request.headers, stream, max_files=limits.files, max_fields=10, max_part_size=10_000)
    try:
        return await parser.parse()
    except (MultiPartException, FormParserError) as error:  # older versions of starlette raise FormParserError
        text = error.message if isinstance(error, MultiPartException) else "Invalid multipart data."
        raise HTTPException(400, f"The request cannot be parsed: {text}") from error
    except (LookupError, UnicodeError) as error:  # a charset that does not exist, or cannot decode the fields
        raise HTTPException(400, "The request cannot be parsed: its charset is not usable, send UTF-8.") from error


def _save(files: list[UploadFile], folder: Path, limits: Limits) -> list[Upload]:
    uploads = []
    for number, file in enumerate(files):
        name = display_name(file.filename or "")
        if (file.size or 0) > limits.file_bytes:
            raise HTTPException(413, f"{name} is larger than {limits.file_bytes:,} bytes.")
        path = folder / f"{number}.image"
        with path.open("wb") as out:
            shutil.copyfileobj(file.file, out)
        with image_errors(path, name):
            check_header(path, limits)
        uploads.append(Upload(path, name))
    return uploads


def check_header(path: Path, limits: Limits) -> None:
    """Check the size of an image before it is decoded.

    Raises:
        UserError: If the image has too many pixels.
    """
    with open_image(path) as image:
        width, height = image.size
    if width * height > limits.pixels or max(width, height) > limits.side:
        raise UserError(
            f"it has {width:,} x {height:,} pixels, but the limit is {limits.pixels:,} ({limits.side:,} per side)"
        )


@contextmanager
def image_errors(path: Path, name: str) -> Iterator[None]:
    """Convert errors of reading an image to a 422 response.

    Args:
        path: Path of the image, removed from the message.
        name: File name sent by the client, used in the message instead.

    Raises:
        HTTPException: 422 for any error in the block.
    """
    try:
        yield
    except HTTPException:
        raise
    except Exception as error:  # Pillow raises many types of exceptions for damaged files
        raise HTTPException(422, f"{name} cannot be read: {reason_of(error, path)}.") from error


def display_name(text: str, max_length: int = 120) -> str:
    """Return the last part of a file name for display, shortened and without control characters."""
    last = text.replace("\\", "/").rstrip("/").rpartition("/")[2]
    clean = "".join(char for char in last if unicodedata.category(char) not in ("Cc", "Cs"))[:max_length]
    return clean or "The image"


def class_name(text: str | None, limits: Limits) -> str:
    """Return a validated and normalized class name. It is never used as a path.

    Args:
        text: Class name sent by the client.
        limits: Limits of requests.

    Raises:
        HTTPException: 422 if the name is empty, too long or not a single line of printable characters.
    """
    name = unicodedata.normalize("NFC", text or "").strip()
    if not name:
        raise HTTPException(422, "The class name is empty: send a class name.")
    if len(name) > limits.name_length:
        raise HTTPException(
            422, f"The class name has {len(name)} characters; at most {limits.name_length} are allowed."
        )
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in name):
        raise HTTPException(422, "The class name must be a single line of printable characters.")
    return name
