"""Selection and encoding of exemplars."""

import io

import numpy as np
import torch
from PIL import Image

from cscct.classifier.exemplars import choose_exemplars, held_out, join_held_out, split_held_out
from cscct.data.encoding import encode, media_type, within_budget
from cscct.data.inputs import ImageFormat
from cscct.specs import TransformSpec

PHOTOS = ImageFormat(TransformSpec(size=224))
DIGITS = ImageFormat(TransformSpec(), channels=1, size=(8, 8))


def test_every_fifth_exemplar_is_held_out() -> None:
    for count, limit in ((23, 20), (55, 20), (7, 20), (4, 20), (5, 3), (12, 12)):
        flags = held_out(count)
        ranked = choose_exemplars(torch.randn(count, 8, generator=torch.Generator().manual_seed(count)), flags, limit)
        assert len(ranked) == len(set(ranked)) == min(count, limit)
        assert flags[ranked].tolist() == held_out(len(ranked)).tolist()


def test_positions_of_held_out_images_stay_empty() -> None:
    assert len(choose_exemplars(torch.randn(9, 4), torch.zeros(9, dtype=torch.bool), 9)) == 4
    assert choose_exemplars(torch.randn(9, 4), torch.ones(9, dtype=torch.bool), 9) == []


def test_images_are_never_enlarged() -> None:
    for size, wanted in (((600, 400), (384, 256)), ((40, 30), (40, 30)), ((5000, 300), (1024, 256)), ((1, 1), (1, 1))):
        picture = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3)).astype(np.uint8)
        with Image.open(io.BytesIO(encode(picture, PHOTOS))) as image:
            assert (image.format, image.size) == ("JPEG", wanted)


def test_no_metadata_of_the_original_is_kept() -> None:
    """For example the location of a photo."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    Image.new("RGB", (20, 20)).save(file, "JPEG", exif=exif)
    assert b"secret" in file.getvalue()
    assert b"secret" not in encode(Image.open(file), PHOTOS)


def test_the_budget_is_shared_evenly() -> None:
    exemplars = {"a": [b"x" * 1000] * 20, "b": [b"x" * 3000] * 20, "c": [b"x" * 1000] * 2}
    assert {label: len(images) for label, images in within_budget(exemplars, 1.0).items()} == {"a": 20, "b": 20, "c": 2}
    small = within_budget(exemplars, 0.030)
    assert {label: len(images) for label, images in small.items()} == {"a": 7, "b": 7, "c": 2}
    assert {len(images) for images in within_budget(exemplars, 0.0).values()} == {0}


def test_images_learned_as_stored_are_encoded_without_loss() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    encoded = encode(pixels, DIGITS)
    assert media_type(encoded) == "image/png"
    with Image.open(io.BytesIO(encoded)) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)
    assert encode(encoded, DIGITS) == encoded


def test_held_out_images_are_split_off_and_joined_again() -> None:
    images = list(range(13))
    trained, held = split_held_out(images)
    assert held == [4, 9]
    assert join_held_out(trained, held) == images
