"""Small image files for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def draw(path: Path, mode: str = "RGB", size: tuple[int, int] = (12, 9)) -> Path:
    """An image of noise, saved in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(path.name)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path)
    return path
