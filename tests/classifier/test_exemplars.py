"""The images that a model keeps of each class."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image

from cscct.classifier.exemplars import choose, encode, held_back, within_budget


def test_every_fifth_image_is_held_back() -> None:
    assert held_back(6).tolist() == [False] * 4 + [True, False]
    assert held_back(3, start=3).tolist() == [False, True, False]


def test_every_fifth_exemplar_is_one_of_those_held_back() -> None:
    for count, limit in ((23, 20), (55, 20), (7, 20), (4, 20), (5, 3), (12, 12)):
        flags = held_back(count)
        ranked = choose(torch.randn(count, 8, generator=torch.Generator().manual_seed(count)), flags, limit)
        assert len(ranked) == len(set(ranked)) == min(count, limit)
        assert flags[ranked].tolist() == held_back(len(ranked)).tolist()


def test_what_is_not_held_back_never_stands_in_its_place() -> None:
    assert len(choose(torch.randn(9, 4), torch.zeros(9, dtype=torch.bool), 9)) == 4
    assert choose(torch.randn(9, 4), torch.ones(9, dtype=torch.bool), 9) == []


def test_images_are_made_smaller_but_never_larger() -> None:
    for size, wanted in (((600, 400), (384, 256)), ((40, 30), (40, 30)), ((5000, 300), (1024, 256)), ((1, 1), (1, 1))):
        picture = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3)).astype(np.uint8)
        with Image.open(io.BytesIO(encode(picture, 256))) as image:
            assert (image.format, image.size) == ("JPEG", wanted)


def test_no_metadata_of_the_original_is_kept() -> None:
    """Where a photograph was taken is nobody's business."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    Image.new("RGB", (20, 20)).save(file, "JPEG", exif=exif)
    assert b"secret" in file.getvalue()
    assert b"secret" not in encode(Image.open(file), 256)


def test_the_budget_is_shared_evenly() -> None:
    exemplars = {"a": [b"x" * 1000] * 20, "b": [b"x" * 3000] * 20, "c": [b"x" * 1000] * 2}
    assert {label: len(one) for label, one in within_budget(exemplars, 1.0).items()} == {"a": 20, "b": 20, "c": 2}
    small = within_budget(exemplars, 0.030)
    assert {label: len(one) for label, one in small.items()} == {"a": 7, "b": 7, "c": 2}
    assert {len(one) for one in within_budget(exemplars, 0.0).values()} == {0}
