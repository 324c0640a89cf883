"""Small image files for tests."""

from pathlib import Path

import numpy as np
from PIL import Image


def draw(path: Path, mode: str = "RGB", size: tuple[int, int] = (12, 9)) -> Path:
    """An image of noise, saved in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(path.name)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path)
    return path


def draw_class(folder: Path, label: str, count: int = 6, size: int = 48, series: int = 0) -> Path:
    """A folder `folder/label` with pictures of a class: stripes whose direction, width and colours depend on the
    label, with some noise. Each series has different images."""
    seed = [ord(letter) for letter in label]
    style = np.random.default_rng(seed)
    direction, width = style.uniform(0, np.pi), style.uniform(2, 8)
    colours = style.uniform(0, 255, (2, 3))
    noise = np.random.default_rng([*seed, series])
    down, across = np.mgrid[:size, :size]
    (folder / label).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        along = across * np.cos(direction) + down * np.sin(direction) + noise.uniform(0, 2 * width)
        stripes = (along // width % 2).astype(int)
        pixels = colours[stripes] + noise.normal(0, 25, (size, size, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
            folder / label / f"{label}-{series}-{number}.jpg", quality=95
        )
    return folder / label
