"""Files of a request: spooled to disk, checked, and gone when the request ends."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import AsyncIterator, Iterator
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
    """An image file of a request. Its header is that of an image within the limits; it is not decoded yet."""

    path: Path  # only as long as the request lasts
    filename: str  # what the client calls it: a text, never a path


@dataclass(frozen=True)
class Form:
    """What a multipart request carries: images and text fields."""

    uploads: list[Upload]
    fields: dict[str, str]


class _Parser(MultiPartParser):
    spool_max_size = 64 * 1024  # beyond this a file is on disk


@asynccontextmanager
async def received(request: Request, limits: Limits, workers: anyio.CapacityLimiter) -> AsyncIterator[Form]:
    """The files under `images` and the other fields."""
    form = await _parsed(request, limits)
    try:
        files = [one for one in form.getlist("images") if isinstance(one, UploadFile)]
        if not files:
            raise HTTPException(422, "There is no file in the field `images`: send at least one image.")
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        with TemporaryDirectory(prefix="cscct-") as folder:
            uploads = await anyio.to_thread.run_sync(_saved, files, Path(folder), limits, limiter=workers)
            yield Form(uploads, fields)
    finally:
        await form.close()


async def _parsed(request: Request, limits: Limits) -> FormData:
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise HTTPException(415, "Send the images as multipart/form-data, in the field `images`.")
    parser = _Parser(request.headers, request.stream(), max_files=limits.files, max_fields=10, max_part_size=10_000)
    try:
        with anyio.fail_after(limits.upload_seconds):
            return await parser.parse()
    except (MultiPartException, FormParserError) as error:  # the second only from older versions of starlette
        text = error.message if isinstance(error, MultiPartException) else "Invalid multipart data."
        raise HTTPException(400, f"The request cannot be read: {text}") from error
    except TimeoutError as error:
        raise HTTPException(408, "The request took too long to arrive: send fewer files at a time.") from error


def _saved(files: list[UploadFile], folder: Path, limits: Limits) -> list[Upload]:
    found = []
    for number, file in enumerate(files):
        name = shown_name(file.filename or "")
        if (file.size or 0) > limits.file_bytes:
            raise HTTPException(413, f"{name} is larger than {limits.file_bytes:,} bytes.")
        path = folder / f"{number}.image"
        with path.open("wb") as out:
            shutil.copyfileobj(file.file, out)
        with explained(path, name):
            check_header(path, limits)
        found.append(Upload(path, name))
    return found


def check_header(path: Path, limits: Limits) -> None:
    """An image that is too large is refused before it is decoded."""
    with open_image(path) as image:
        width, height = image.size
    if width * height > limits.pixels or max(width, height) > limits.side:
        raise UserError(
            f"it has {width:,} x {height:,} pixels; at most {limits.pixels:,} are taken, and {limits.side:,} a side"
        )


@contextmanager
def explained(path: Path, name: str) -> Iterator[None]:
    """An image that cannot be read is the client's mistake. Told with its own name, not with that of our file."""
    try:
        yield
    except HTTPException:
        raise
    except Exception as error:  # Pillow's readers fail in many ways on other files
        raise HTTPException(422, f"{name} cannot be used: {reason_of(error, path)}.") from error


def shown_name(text: str, most: int = 120) -> str:
    """A file's name as it may be shown: its last part, without control characters, not endless."""
    last = text.replace("\\", "/").rstrip("/").rpartition("/")[2]
    clean = "".join(one for one in last if unicodedata.category(one) not in ("Cc", "Cs"))[:most]
    return clean or "The image"


def class_name(text: str | None, limits: Limits) -> str:
    """A name for a class: any text of one line that is not too long. It never becomes a path."""
    name = unicodedata.normalize("NFC", text or "").strip()
    if not name:
        raise HTTPException(422, "The class has no name: send one.")
    if len(name) > limits.name_length:
        raise HTTPException(422, f"The name of a class has at most {limits.name_length} characters, not {len(name)}.")
    if any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in name):
        raise HTTPException(422, "The name of a class is one line of printable characters.")
    return name
