"""Images in one folder per class: a user's own, and the 100 classes of ImageNet that the paper uses.

Every file is accounted for: what is not a readable image is named and refused, or skipped when asked. A
training run that stops at hour six because of one broken file helps nobody.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ...errors import UserError
from ..base import Dataset, FileImages, Split
from ..registry import LoadRequest, listing, locate

SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"])
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM", "TIFF")  # no others: EPS would start a program
_SUBSET_NAMES = ("imagenet-subset", "imagenet100", "imagenet")


class _File(NamedTuple):
    path: Path
    label: int


def load_folder(request: LoadRequest) -> Dataset:
    """DIR/train and DIR/test (or val); without a test folder, part of each class is set aside."""
    root = _folder_root(request)
    train_dir, test_dir = _parts(root)
    classes = _classes_in(train_dir)
    if test_dir is not None:
        unknown = [name for name in _class_folders(test_dir) if name not in classes]
        if unknown:
            raise UserError(
                f"{test_dir} has classes that {train_dir} does not have: {listing(unknown)}. "
                "Add training images for them or remove them."
            )
    train = _files(train_dir, classes)
    test = _files(test_dir, classes) if test_dir else []
    loose = _loose_images(train_dir) + (_loose_images(test_dir) if test_dir else [])

    faults = dict.fromkeys(loose, "in no class folder") | _faults(
        [f.path for f in train + test], _fault_in_full, request
    )
    _refuse_or_warn(root, faults, len(train) + len(test) + len(loose), request)
    train, test = _without(train, faults, classes, train_dir), _without(test, faults, classes, test_dir)
    if test_dir is None:
        train, test = _set_aside(train, classes, request)
    return Dataset("folder", classes, _split(train), _split(test), channels=3)


def folder_classes(request: LoadRequest) -> tuple[str, ...]:
    """The classes of a folder of images, without reading the images."""
    return _classes_in(_parts(_folder_root(request))[0])


def _parts(root: Path) -> tuple[Path, Path | None]:
    """The folders with training and with test images."""
    train_dir = root / "train"
    test_dir = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if train_dir.is_dir():
        return train_dir, test_dir
    if test_dir is not None:
        raise UserError(f"{root} has a folder {test_dir.name!r} but no folder 'train': add it, or rename it.")
    return root, None


def _classes_in(train_dir: Path) -> tuple[str, ...]:
    classes = tuple(_class_folders(train_dir))
    if len(classes) < 2:
        raise UserError(
            f"{train_dir} has {len(classes)} class folders: at least two are needed, each with the images of one class."
        )
    return classes


def load_imagenet_subset(request: LoadRequest) -> Dataset:
    """Labels are ranks in the sorted list. Only headers and ends of files are read: decoding 126,000 images
    would take many minutes before the first step of training."""
    places = locate(request.data_dir, *_SUBSET_NAMES)
    root = next((p for p in places if (p / "train").is_dir() and (p / "val").is_dir()), None)
    if root is None:
        raise UserError(
            f"ImageNet-Subset was not found in {places[0]} (nor in {', '.join(_SUBSET_NAMES)} there). "
            "It cannot be fetched, for its licence does not allow that: get ILSVRC 2012 from image-net.org, "
            "lay it out as DIR/train/n01440764/*.JPEG and DIR/val/n01440764/*.JPEG, one folder per class, "
            "and try `cscct data check imagenet-subset --data-dir DIR`."
        )
    classes = subset_wnids()
    missing = [f"{part}/{c}" for part in ("train", "val") for c in classes if not (root / part / c).is_dir()]
    if missing:
        raise UserError(
            f"{root} lacks {len(missing)} of the {2 * len(classes)} class folders of ImageNet-Subset, the "
            f"first is {missing[0]}. Add them, then try `cscct data check imagenet-subset --data-dir {root}`."
        )
    train, test = _files(root / "train", classes), _files(root / "val", classes)
    faults = _faults([f.path for f in train + test], _fault_at_a_glance, request)
    _refuse_or_warn(root, faults, len(train) + len(test), request)
    train = _without(train, faults, classes, root / "train")
    test = _without(test, faults, classes, root / "val")
    return Dataset("imagenet-subset", classes, _split(train), _split(test), channels=3)


def subset_wnids() -> tuple[str, ...]:
    text = Path(__file__).with_name("imagenet_subset_wnids.txt").read_text(encoding="ascii")
    return tuple(sorted(text.split()))


def read_image(path: Path) -> Image.Image:
    """The picture as a person sees it (turned as its EXIF data say), in RGB."""
    return read_reduced(path, lambda *_: 1)[0]


def read_reduced(path: Path, times: Callable[[int, int], float]) -> tuple[Image.Image, tuple[int, int]]:
    """The picture, perhaps smaller, and the width and height it has in full.

    times: told these two, says how many times smaller it may be. A JPEG is then decoded at 1/2, 1/4 or 1/8, whichever
    is not too small, which takes a fraction of the time; other formats come in full.
    """
    try:
        with _opened(path) as image:
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
            return _to_rgb(upright), full
    except FileNotFoundError as error:
        raise UserError(f"The image {path} does not exist.") from error
    except Exception as error:  # Pillow's readers fail in many ways on damaged files
        raise UserError(f"The image {path} cannot be read: {_reason(error, path)}.") from error


def _reduce(image: Image.Image, times: Callable[[int, int], float]) -> None:
    turned = False
    with suppress(Exception):
        turned = image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    allowed = times(*(image.size[::-1] if turned else image.size))
    divisor = max((one for one in (2, 4, 8) if one <= allowed), default=1)
    if divisor > 1:
        image.draft(None, (max(1, image.width // divisor), max(1, image.height // divisor)))


def _opened(path: Path) -> Image.Image:
    """The image with its header read. Pillow itself only warns up to twice its limit."""
    image = Image.open(path, formats=_FORMATS)
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or np.inf):
        image.close()
        raise Image.DecompressionBombError(f"it claims {image.width} x {image.height} pixels")
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        # 16 bits in grey: convert() would cut everything above 255 to white.
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:  # straight to RGB, Pillow warns
        image = image.convert("RGBA")
    return image.convert("RGB") if image.mode != "RGB" else image


def _folder_root(request: LoadRequest) -> Path:
    if request.data_dir is None and not os.environ.get("CSCCT_DATA"):
        raise UserError("The dataset 'folder' needs the folder of your images: name it with --data-dir.")
    root = locate(request.data_dir)[0]
    if not root.is_dir():
        raise UserError(f"{root} is not a folder: name the folder of your images with --data-dir.")
    return root


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error


def _class_folders(folder: Path) -> list[str]:
    return [path.name for path in _visible(folder) if path.is_dir()]


def _loose_images(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and not path.is_dir()]


def _files(split_dir: Path, classes: Sequence[str]) -> list[_File]:
    """Everything in the class folders. A class without a folder is left to the check after loading."""
    files: list[_File] = []
    for label, name in enumerate(classes):
        if (split_dir / name).is_dir():
            found = _visible(split_dir / name)
            if not found:
                raise UserError(f"The class folder {split_dir / name} is empty: add images or remove it.")
            files += [_File(path, label) for path in found]
    return files


def _faults(paths: list[Path], fault: Callable[[Path], str | None], request: LoadRequest) -> dict[Path, str]:
    """What is wrong with each file that has something wrong. Pillow lets go of the GIL while it decodes."""

    def examine(path: Path) -> str | None:
        if path.is_dir():
            return "a folder inside a class folder"
        return fault(path) if path.suffix.lower() in SUFFIXES else "not an image file"

    with warnings.catch_warnings(), ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files
        found = {}
        try:
            for number, (path, what) in enumerate(zip(paths, pool.map(examine, paths), strict=True)):
                request.progress("checking images", number + 1, len(paths))
                if what:
                    found[path] = what
        finally:  # where it is broken off, the pool would look at the rest before it lets go
            pool.shutdown(cancel_futures=True)
        return found


def _fault_in_full(path: Path) -> str | None:
    try:
        read_reduced(path, lambda *_: 8)  # all of the file is read all the same
    except UserError as error:
        return _reason(error.__cause__ or error, path)
    return None


def _fault_at_a_glance(path: Path) -> str | None:
    try:
        with _opened(path) as image:
            if image.format != "JPEG":
                return None
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            end = file.read().rstrip(b"\0")
        # A whole JPEG ends with FFD9; some programs write a little more after it.
        return None if b"\xff\xd9" in end[-66:] else "truncated"
    except Exception as error:
        return _reason(error, path)


def _reason(error: BaseException, path: Path) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).replace(str(path), path.name).rstrip(".")


def _refuse_or_warn(root: Path, faults: dict[Path, str], total: int, request: LoadRequest) -> None:
    if not faults:
        return
    names = listing([f"{path.relative_to(root)} ({why})" for path, why in faults.items()])
    found = f"{len(faults)} of {total} files in {root} cannot be read as images: {names}"
    if not request.skip_bad_images:
        raise UserError(f"{found}; remove them or pass --skip-bad-images.")
    request.warn(f"{found}; they are skipped.")


def _without(
    files: list[_File], faults: dict[Path, str], classes: Sequence[str], split_dir: Path | None
) -> list[_File]:
    kept = [file for file in files if file.path not in faults]
    lost = sorted({file.label for file in files} - {file.label for file in kept})
    if lost:
        raise UserError(
            f"No readable image is left in {split_dir} for {listing([classes[label] for label in lost])}: "
            "add images or remove the class."
        )
    return kept


def _set_aside(files: list[_File], classes: Sequence[str], request: LoadRequest) -> tuple[list[_File], list[_File]]:
    """Some images of each class for testing. The draw depends on the seed and the class name alone, so a new
    class leaves the test images of the others as they were."""
    if not 0 < request.test_fraction < 1:
        raise UserError(f"The test fraction must lie between 0 and 1, and it is {request.test_fraction}.")
    train: list[_File] = []
    test: list[_File] = []
    for label, name in enumerate(classes):
        mine = [file for file in files if file.label == label]
        if len(mine) < 2:
            raise UserError(
                f"Class {name} has one image, but two are needed to set one aside for testing: add images, "
                "or put test images in a folder 'test' beside 'train'."
            )
        count = min(max(round(len(mine) * request.test_fraction), 1), len(mine) - 1)
        rng = np.random.default_rng([request.seed % 2**64, zlib.crc32(name.encode(errors="surrogateescape"))])
        drawn = set(rng.permutation(len(mine))[:count].tolist())
        train += [file for i, file in enumerate(mine) if i not in drawn]
        test += [file for i, file in enumerate(mine) if i in drawn]
    return train, test


def _split(files: list[_File]) -> Split:
    return Split(FileImages(tuple(f.path for f in files)), np.array([f.label for f in files], dtype=np.int64))
