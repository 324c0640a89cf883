"""Folders with damaged images, unusual images and other files."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from damage import CONTENTS
from small_runs import TINY, set_options
from watch import CaseResult, Kind, Outside, result_of, run_command

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".bmp": "BMP", ".gif": "GIF", ".webp": "WEBP", ".tif": "TIFF", ".ppm": "PPM"}
MODES = ("RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I;16", "F", "YCbCr", "HSV")
SIZES = ((8, 8), (12, 9), (1, 1), (1, 40), (300, 2), (33, 64))
NAMES = ("cat", "dog", "=SUM(A1)", "<b>", "-x", "数字", "a b", "x" * 200, "café", ".hidden", "train2", "%s", "a\nb")
SETTINGS = (
    *TINY,
    "data.classes=null",
    "protocol.base=1",
    "protocol.step=1",
    "data.transform.size=8",
    "data.test_per_class=null",
)


def picture(rng: random.Random, suffix: str) -> bytes:
    """Return a small image of noise with a random mode, size and variant of its format."""
    width, height = rng.choice(SIZES)
    noise = np.random.default_rng(rng.randrange(1000)).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image, mode = Image.fromarray(noise), rng.choice(MODES if rng.random() < 0.4 else ("RGB", "L"))
    image = image.convert("L").convert(mode) if mode in ("I;16", "F", "LA") else image.convert(mode)
    if rng.random() < 0.1:
        image.getexif()[0x0112] = rng.randint(0, 20)
    buffer = io.BytesIO()
    try:
        image.save(buffer, FORMATS[suffix], exif=image.getexif().tobytes() if rng.random() < 0.1 else b"")
    except (OSError, ValueError, TypeError):  # the format does not support this mode
        buffer = io.BytesIO()
        ImageOps.exif_transpose(image.convert("RGB")).save(buffer, FORMATS[suffix])
    return buffer.getvalue()


def _huge(path: Path, rng: random.Random) -> None:
    """Write a header that declares more pixels than fit in memory."""
    path.write_bytes(b"P6 %d %d 255\n" % (rng.choice((60_000, 2_000_000)), 60_000) + bytes(50))


def _replaced(how: str) -> Callable[[Path, random.Random], None]:
    def replace(path: Path, rng: random.Random) -> None:
        path.unlink()
        if how == "fifo":
            os.mkfifo(path)
        elif how == "folder":
            path.mkdir()
        elif how == "loop":
            path.symlink_to(path.name)
        else:
            path.symlink_to("nothing")

    return replace


ODD: tuple[Callable[[Path, random.Random], None], ...] = (
    *(
        lambda path, rng, change=change: path.write_bytes(change(bytearray(path.read_bytes()), rng))  # type: ignore[misc]
        for change in CONTENTS.values()
    ),
    _huge,
    *map(_replaced, ("fifo", "folder", "loop", "dangling")),
    lambda path, rng: path.rename(path.with_suffix(rng.choice((*FORMATS, ".txt", ".JPG", "")))) and None,
    lambda path, rng: path.rename(os.fsdecode(os.fsencode(path.parent) + b"/caf\xe9.png")) and None,
    lambda path, rng: path.with_name("Thumbs.db").write_bytes(b"x") and None,
)


class Images(Kind):
    """`cscct data check` on a folder, and a small run on it. Damaged images are rejected or left out."""

    name, cases = "images", 200

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        files = self._draw(workdir / "images", rng)
        for path in rng.sample(files, rng.choice((0, 1, 1, 2, 5))):
            if path.is_file():
                rng.choice(ODD)(path, rng)
        skip = ["--skip-bad-images"] if rng.random() < 0.5 else []
        cache = ["data.resize_cache_px=9"] if rng.random() < 0.3 else []
        common = ["--data-dir", "images", *skip]
        check = run_command("data", "check", "folder", *common, folder=workdir)
        method = rng.choice(("lucir+cscct", "icarl", "podnet"))
        arguments = ["run", method, "folder", *common, *set_options(*SETTINGS, *cache), "--out", "run", "--quiet"]
        steps = [run_command(*arguments, folder=workdir)]
        if steps[0].code == 0:
            steps += [run_command("report", "run", "--quiet", folder=workdir)] if rng.random() < 0.2 else []
            steps.append(run_command(*arguments, folder=workdir))
        result = result_of([*steps, check], outside, "learned", f"{len(files)} images; {' '.join(skip + cache)}")
        if len(steps) > 1 and steps[-1].code != 0:
            result.faults.append(f"accepted once, rejected the second time: {steps[-1].stderr[-200:]}")
        return result

    def _draw(self, folder: Path, rng: random.Random) -> list[Path]:
        """Write two to four classes with a few images each."""
        files = []
        for name in rng.sample(NAMES, rng.randint(2, 4)):
            workdir = folder / name
            if rng.random() < 0.03:
                workdir = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9"))
            workdir.mkdir(parents=True, exist_ok=True)
            for index in range(rng.randint(3, 6)):
                suffix = rng.choice(sorted(FORMATS))
                files.append(workdir / f"{index}{suffix}")
                files[-1].write_bytes(picture(rng, suffix))
        return files
