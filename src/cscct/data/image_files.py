"""Image files: decoding, recognition and detection of damage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError, features

from ..errors import UnreadableImage, UserError, install_hint
from .videos import is_video

SUFFIXES = frozenset(
    [".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff", ".heic", ".heif", ".hif", ".avif"]
)
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM", "TIFF")  # no others: EPS would start a program
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_AVIF_BRANDS = (b"avif", b"avis")


def looks_like_image(path: Path) -> bool:
    """Return whether a file has the suffix of an image or, with another suffix, begins like an image."""
    if path.suffix.lower() in SUFFIXES:
        return True
    try:
        open_image(path).close()
    except Image.DecompressionBombError:
        return True
    except Exception:  # Pillow's readers fail in many ways on other files
        return False
    return True


def read_image(path: Path) -> Image.Image:
    """Return the image in RGB, oriented as its EXIF data specify."""
    return read_reduced(path, lambda *_: 1)[0]


def read_reduced(path: Path, times: Callable[[int, int], float]) -> tuple[Image.Image, tuple[int, int]]:
    """Return the image, perhaps reduced, and its original width and height.

    Args:
        path: The image file.
        times: Returns how many times smaller the image may be, given its width and height. JPEG images are decoded at
            1/2, 1/4 or 1/8 of their size if that is not too small, which is much faster; other formats in full.
    """
    try:
        with open_image(path) as image:
            full = image.size
            if image.format in ("JPEG", "MPO"):
                _reduce(image, times)
            image.load()
            drafted = image.size != full
            upright: Image.Image = image
            with suppress(Exception):  # broken EXIF data do not make the picture unreadable
                upright = ImageOps.exif_transpose(image)
            if not drafted:
                full = upright.size
            elif upright.size != image.size:  # it lay on its side
                full = full[::-1]
            return to_rgb(upright), full
    except FileNotFoundError as error:
        raise UserError(f"The image {path} does not exist.") from error
    except Exception as error:  # Pillow's readers fail in many ways on damaged files
        raise UnreadableImage(f"The image {path}", reason_of(error, path)) from error


def _reduce(image: Image.Image, times: Callable[[int, int], float]) -> None:
    turned = False
    with suppress(Exception):
        turned = image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    allowed = times(*(image.size[::-1] if turned else image.size))
    divisor = max((one for one in (2, 4, 8) if one <= allowed), default=1)
    if divisor > 1:
        image.draft(None, (max(1, image.width // divisor), max(1, image.height // divisor)))


def open_image(path: Path) -> Image.Image:
    """Open an image and read its header. Pillow itself only warns about images of up to twice its limit."""
    if path.exists() and not path.is_file():  # opening a pipe would block
        raise OSError("not a regular file")
    image = Image.open(path, formats=_formats(path))
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or np.inf):
        image.close()
        raise Image.DecompressionBombError(f"it claims {image.width} x {image.height} pixels")
    return image


def _formats(path: Path) -> tuple[str, ...]:
    """Return the formats that a file may have. HEIC and AVIF are recognised by the brands at the beginning of the file,
    because their decoders may be missing."""
    with open(path, "rb") as file:
        start = file.read(64)
    if start[4:8] != b"ftyp":
        return _FORMATS
    brands = [start[i : i + 4] for i in range(8, min(len(start), int.from_bytes(start[:4], "big")), 4)]
    if any(brand in _AVIF_BRANDS for brand in brands):
        if not features.check("avif"):
            raise OSError("AVIF images need Pillow 11.3 or newer: pip install -U pillow, or convert them to JPEG")
        return ("AVIF",)
    if any(brand in _HEIF_BRANDS for brand in brands):
        try:
            import pillow_heif
        except ImportError:
            message = f"HEIC images need the extra heif: {install_hint('heif')}; or convert them to JPEG"
            raise OSError(message) from None
        pillow_heif.register_heif_opener(thumbnails=False)
        return ("HEIF",)
    return _FORMATS


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB. An alpha channel is dropped."""
    if image.mode == "I" or image.mode.startswith("I;16"):
        # 16 bits in grey: convert() would cut everything above 255 to white.
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:  # straight to RGB, Pillow warns
        image = image.convert("RGBA")
    return image.convert("RGB") if image.mode != "RGB" else image


def full_fault(path: Path) -> str | None:
    """Return what is wrong with an image file after decoding all of it, or None."""
    try:
        read_reduced(path, lambda *_: 8)  # all of the file is read all the same
    except UnreadableImage as error:
        return error.reason
    except UserError as error:
        return reason_of(error.__cause__ or error, path)
    return None


def quick_fault(path: Path) -> str | None:
    """Return what is wrong with the header or the end of an image file, or None."""
    try:
        with open_image(path) as image:
            if image.format != "JPEG":
                return None
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            end = file.read().rstrip(b"\0")
        # A whole JPEG ends with FFD9; some programs write a little more after it.
        return None if b"\xff\xd9" in end[-66:] else "truncated"
    except Exception as error:
        return reason_of(error, path)


def reason_of(error: BaseException, path: Path) -> str:
    """Return the reason why an image could not be read, as the end of a sentence."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image; --every 1s reads videos, if they are undamaged" if is_video(path) else "not an image"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).replace(str(path), path.name).rstrip(".")
