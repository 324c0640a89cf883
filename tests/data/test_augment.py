"""Views compared with Pillow."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from cscct.data import augment
from cscct.data.augment import FileView, View, make_view, random_resized_box
from cscct.data.base import ArrayImages, FileImages
from cscct.errors import UserError
from cscct.specs import TransformSpec

BILINEAR = Image.Resampling.BILINEAR
MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def gen(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(k: int, channels: int = 3, height: int = 6, width: int = 9) -> Tensor:
    return torch.randint(0, 256, (k, channels, height, width), dtype=torch.uint8, generator=gen(0))


def view_of(pixels: Tensor, **options: object) -> View:
    channels = pixels.shape[1]
    return make_view(ArrayImages(pixels), TransformSpec(mean=MEAN[:channels], std=STD[:channels], **options))  # type: ignore[arg-type]


def as_image(pixels: Tensor) -> Image.Image:
    """(c, h, w) uint8."""
    return Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).numpy())


def as_pixels(values: Tensor) -> np.ndarray:
    """Network inputs back to 8 bits, (k, h, w, c) without the last axis for grey; they must be whole numbers."""
    channels = values.shape[1]
    mean, std = (torch.tensor(values[:channels]).view(-1, 1, 1) for values in (MEAN, STD))
    exact = (values * std + mean) * 255
    assert (exact - exact.round()).abs().max() < 1e-3
    return exact.round().permute(0, 2, 3, 1).to(torch.uint8).numpy().squeeze(3 if channels == 1 else ())


@pytest.mark.parametrize("side", [4, 6, 23])
def test_images_in_memory_are_resized(side: int) -> None:
    """As the image library does it, up to its rounding to 8 bits; in training after the crop and the flip."""
    pixels = noise(3, height=6, width=6)
    seen = view_of(pixels, size=side).plain(torch.arange(3))
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    expected = np.stack([np.asarray(as_image(image).resize((side, side), BILINEAR)) for image in pixels])
    np.testing.assert_allclose(((seen * std + mean) * 255).permute(0, 2, 3, 1).numpy(), expected, atol=1.01)
    assert seen.is_contiguous(memory_format=torch.channels_last)
    cropped = view_of(pixels, padding=2).train(torch.arange(3), gen())
    torch.testing.assert_close(
        view_of(pixels, padding=2, size=side).train(torch.arange(3), gen()),
        torch.nn.functional.interpolate(cropped, (side, side), mode="bilinear", antialias=True),
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("padding", "flip"), [(2, True), (2, False), (1, True), (0, True)])
def test_crop_and_flip(channels: int, padding: int, flip: bool) -> None:
    """Every sample is a window of its zero-padded image, mirrored or not; all windows occur, each sample draws its
    own."""
    pixels = noise(4, channels)
    indices = torch.arange(4).repeat(100)
    out = as_pixels(view_of(pixels, padding=padding, flip=flip).train(indices, gen()))
    origin = [dict[bytes, tuple[int, int, bool]]() for _ in pixels]
    for number, image in enumerate(pixels):
        padded = ImageOps.expand(as_image(image), padding, fill=0)
        for top, left in product(range(2 * padding + 1), repeat=2):
            window = padded.crop((left, top, left + 9, top + 6))
            origin[number][np.asarray(window).tobytes()] = (top, left, False)
            if flip:
                origin[number][np.asarray(ImageOps.mirror(window)).tobytes()] = (top, left, True)
    windows = [origin[index][sample.tobytes()] for index, sample in zip(indices.tolist(), out, strict=True)]
    assert {(top, left) for top, left, _ in windows} == set(product(range(2 * padding + 1), repeat=2))
    flipped = sum(mirrored for _, _, mirrored in windows)
    assert 150 < flipped < 250 if flip else flipped == 0


def test_source_pixels_are_not_changed() -> None:
    pixels = noise(8)
    before = pixels.clone()
    for padding in (0, 2):
        view = view_of(pixels, padding=padding, brightness=0.5)
        view.train(torch.arange(8), gen())
        for variant in ("none", "hflip", "bgr"):
            view.plain(torch.arange(8), variant)  # type: ignore[arg-type]
    assert torch.equal(pixels, before)


def test_brightness_matches_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 256 values times a thousand factors, those that meet whole numbers included."""
    ramp = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    draws = torch.arange(0, 1, 0.001)
    monkeypatch.setattr(torch, "rand", lambda k, generator: draws[:k])
    view = view_of(ramp, padding=0, flip=False, brightness=0.5)
    out = as_pixels(view.train(torch.zeros(len(draws), dtype=torch.long), gen()))
    factors = 1 + 0.5 * (2 * draws - 1)
    enhance = ImageEnhance.Brightness(as_image(ramp[0])).enhance
    for sample, factor in zip(out, factors.tolist(), strict=True):
        np.testing.assert_array_equal(sample, np.asarray(enhance(factor)))


def test_brightness_follows_crop_and_flip() -> None:
    """The padding stays black, and each sample is a brighter or darker window."""
    pixels = torch.full((1, 3, 8, 8), 100, dtype=torch.uint8)
    out = as_pixels(view_of(pixels, padding=3, brightness=0.5).train(torch.zeros(50, dtype=torch.long), gen()))
    assert {len(np.unique(sample)) for sample in out} <= {1, 2}
    assert len({int(sample.max()) for sample in out}) > 20


@pytest.mark.parametrize("channels", [1, 3])
def test_plain_is_normalised(channels: int) -> None:
    pixels = noise(5, channels)
    indices = torch.tensor([4, 0, 0])
    out = view_of(pixels).plain(indices)
    mean, std = (torch.tensor(values[:channels], dtype=torch.float64).view(-1, 1, 1) for values in (MEAN, STD))
    expected = (pixels[indices].double() / 255 - mean) / std
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=0)


def test_variants() -> None:
    pixels = noise(3)
    view = view_of(pixels)
    for index, sample in enumerate(pixels):
        image = as_image(sample)
        expected = {
            "none": image,
            "hflip": ImageOps.mirror(image),
            "bgr": Image.merge("RGB", image.split()[::-1]),
        }
        for variant, other in expected.items():
            out = as_pixels(view.plain(torch.tensor([index]), variant))[0]  # type: ignore[arg-type]
            np.testing.assert_array_equal(out, np.asarray(other))


@pytest.mark.parametrize("brightness", [0.0, 0.3])
@pytest.mark.parametrize("padding", [0, 2])
def test_layout_and_type(padding: int, brightness: float) -> None:
    view = view_of(noise(6), padding=padding, brightness=brightness)
    for out in (view.train(torch.arange(6), gen()), view.plain(torch.arange(6)), view.plain(torch.arange(6), "hflip")):
        assert out.dtype == torch.float32
        assert out.shape == (6, 3, 6, 9)
        assert out.is_contiguous(memory_format=torch.channels_last)


def test_same_generator_same_batch() -> None:
    view, indices = view_of(noise(20), padding=2, brightness=0.3), torch.arange(20)
    first = view.train(indices, gen(4))
    torch.manual_seed(0)
    assert torch.equal(view.train(indices, gen(4)), first)
    assert not torch.equal(view.train(indices, gen(5)), first)


# Files


SIZES = [(40, 30), (30, 40), (33, 33), (17, 50), (50, 17), (9, 12), (16, 16)]
SIZE = 16


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Images of several shapes, one smaller than the input, and a grey, a CMYK and a palette file."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for number, (width, height) in enumerate(SIZES):
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    colours = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    colours.convert("L").save(folder / "7-grey.png")
    colours.convert("CMYK").save(folder / "8-cmyk.jpg")
    colours.convert("P").save(folder / "9-palette.png")
    return tuple(sorted(folder.iterdir()))


def file_view(files: tuple[Path, ...], workers: int = 2, **options: object) -> View:
    return make_view(FileImages(files), TransformSpec(size=SIZE, mean=MEAN, std=STD, **options), workers)  # type: ignore[arg-type]


def rgb(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def resized_and_cropped(image: Image.Image, size: int) -> Image.Image:
    """torchvision's Resize(size · 256 / 224) and CenterCrop(size)."""
    short, (width, height) = round(size * 256 / 224), image.size
    long = int(short * max(width, height) / min(width, height))
    new = (short, long) if width <= height else (long, short)
    image = image.resize(new, BILINEAR)
    left, top = round((image.width - size) / 2.0), round((image.height - size) / 2.0)
    return image.crop((left, top, left + size, top + size))


@pytest.mark.parametrize("variant", ["none", "hflip", "bgr"])
def test_centre_crop(files: tuple[Path, ...], variant: str) -> None:
    assert len(files) == 10
    out = as_pixels(file_view(files).plain(torch.arange(10), variant))  # type: ignore[arg-type]
    for path, sample in zip(files, out, strict=True):
        expected = np.asarray(resized_and_cropped(rgb(path), SIZE))
        if variant == "hflip":
            expected = expected[:, ::-1]
        elif variant == "bgr":
            expected = expected[:, :, ::-1]
        np.testing.assert_array_equal(sample, expected, err_msg=path.name)


def test_centre_crop_at_the_published_size(tmp_path: Path) -> None:
    """256 for the short side, then 224 of it."""
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (300, 401, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    view = make_view(FileImages((tmp_path / "a.png",)), TransformSpec(size=224, mean=MEAN, std=STD))
    expected = rgb(tmp_path / "a.png").resize((342, 256), BILINEAR).crop((59, 16, 59 + 224, 16 + 224))
    np.testing.assert_array_equal(as_pixels(view.plain(torch.tensor([0])))[0], np.asarray(expected))


@pytest.mark.parametrize("box", [(0, 0, 40, 30), (3, 5, 28, 27), (10, 2, 20, 10)])
def test_random_crop_is_cut_out_and_then_resized(
    files: tuple[Path, ...], box: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in torchvision: pixels outside of the box have no effect."""
    monkeypatch.setattr(augment, "random_resized_box", lambda width, height, draws: box)
    out = as_pixels(file_view(files, flip=False).train(torch.tensor([0]), gen()))[0]
    np.testing.assert_array_equal(out, np.asarray(rgb(files[0]).crop(box).resize((SIZE, SIZE), BILINEAR)))


def test_random_crops_of_files(files: tuple[Path, ...]) -> None:
    view, same = file_view(files, brightness=0.2), torch.zeros(30, dtype=torch.long)
    out = view.train(same, gen(1))
    assert len({sample.numpy().tobytes() for sample in out}) == 30
    assert out.shape == (30, 3, SIZE, SIZE)
    assert out.dtype == torch.float32
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert view.plain(torch.arange(10)).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_do_not_change_a_batch_of_files(files: tuple[Path, ...], workers: int) -> None:
    indices = torch.arange(10).repeat(2)
    first = file_view(files, brightness=0.2).train(indices, gen(3))
    assert torch.equal(file_view(files, workers, brightness=0.2).train(indices, gen(3)), first)
    assert not torch.equal(file_view(files, workers, brightness=0.2).train(indices, gen(4)), first)


def test_files_need_a_size_and_must_exist(files: tuple[Path, ...], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"image files need data\.transform\.size"):
        FileView(FileImages(files), TransformSpec(), 2)
    gone = file_view((tmp_path / "gone.png",))
    with pytest.raises(UserError, match=r"gone\.png does not exist"):
        gone.plain(torch.tensor([0]))


# The box of a random resized crop


@pytest.mark.parametrize(("width", "height"), [(400, 300), (300, 400), (224, 224), (900, 300)])
def test_random_boxes(width: int, height: int) -> None:
    draws = np.random.default_rng(0).random((500, 10, 4))
    boxes = np.array([random_resized_box(width, height, rows) for rows in draws])
    left, top, right, bottom = boxes.T
    assert boxes.min() >= 0
    assert (boxes.max(axis=0)[2:] <= (width, height)).all()
    w, h = right - left, bottom - top
    share, ratio = w * h / (width * height), w / h
    assert 0.078 < share.min() < 0.1
    assert (0.8 if max(width, height) < 900 else 0.35) < share.max() <= 1
    assert 0.73 < ratio.min() < 0.77
    assert 1.3 < ratio.max() < 1.36
    assert len(np.unique(boxes, axis=0)) > 450


def test_first_fitting_box_is_used() -> None:
    whole, corner = [1 - 1e-9, 0.5, 0.5, 0.5], [0.0, 0.5, 1 - 1e-9, 1 - 1e-9]
    unfit = [1 - 1e-9, 0.0, 0.5, 0.5]  # all of the area, and higher than wide
    assert random_resized_box(100, 100, np.array([whole, corner])) == (0, 0, 100, 100)
    assert random_resized_box(100, 100, np.array([unfit, corner, whole])) == (72, 72, 100, 100)
    assert random_resized_box(100, 100, np.array([[0.0, 0.5, 0.0, 0.0]])) == (0, 0, 28, 28)
    assert random_resized_box(1000, 1000, np.array([[0.0, 0.0, 0.0, 0.0]])) == (0, 0, 245, 327)
    assert random_resized_box(1000, 1000, np.array([[0.0, 1 - 1e-9, 0.0, 0.0]])) == (0, 0, 327, 245)


@pytest.mark.parametrize(
    ("width", "height", "box"),
    [
        (100, 30, (30, 0, 70, 30)),  # too wide: 4/3 of the height
        (30, 100, (0, 30, 30, 70)),
        (100, 80, (0, 0, 100, 80)),  # an allowed ratio: all of it
        (1, 50, (0, 24, 1, 25)),
        (50, 1, (24, 0, 25, 1)),
        (1, 1, (0, 0, 1, 1)),
    ],
)
def test_fallback(width: int, height: int, box: tuple[int, int, int, int]) -> None:
    """If no box fits: the largest central box with an allowed ratio."""
    assert random_resized_box(width, height, np.empty((0, 4))) == box
    if width != height:
        unfit = np.array([[1 - 1e-9, 0.0 if width > height else 1 - 1e-9, 0.5, 0.5]] * 10)
        assert random_resized_box(width, height, unfit) == box


def photo(path: Path, width: int, height: int, **options: object) -> Path:
    """An image with smooth shapes and little noise."""
    rng = np.random.default_rng(width)
    few = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height), BILINEAR)
    noisy = np.asarray(few) + rng.normal(0, 4, (height, width, 1))
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=92, **options)  # type: ignore[arg-type]
    return path


def decoded_widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    widths: list[int] = []
    real = augment.read_reduced

    def spy(path: Path, times: object) -> tuple[Image.Image, tuple[int, int]]:
        image, size = real(path, times)  # type: ignore[arg-type]
        widths.append(image.width)
        return image, size

    monkeypatch.setattr(augment, "read_reduced", spy)
    return widths


def views_of_a_photo(path: Path) -> tuple[View, View]:
    """Views with and without reduced decoding."""
    quick, full = (file_view((path,), flip=False, reduced_decoding=reduced) for reduced in (True, False))
    return quick, full


def test_reduced_decoding_of_large_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widths = decoded_widths(monkeypatch)
    quick, full = views_of_a_photo(photo(tmp_path / "a.jpg", 1203, 901))
    same = torch.zeros(40, dtype=torch.long)
    for make in (lambda view: view.train(same, gen(5)), lambda view: view.plain(same[:1])):
        widths.clear()
        actual, expected = (as_pixels(make(view)).astype(int) for view in (quick, full))
        assert min(widths) == 151  # an eighth
        assert max(widths) == 1203
        difference = np.abs(actual - expected).reshape(len(actual), -1)
        assert difference.mean() < 2  # of 255
        assert difference.mean(axis=1).max() < 4


def test_a_small_crop_is_decoded_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = photo(tmp_path / "a.jpg", 400, 300)
    widths = decoded_widths(monkeypatch)
    quick, full = views_of_a_photo(path)
    for side, width in ((SIZE, 400), (2 * SIZE - 1, 400), (2 * SIZE, 200), (4 * SIZE, 100)):
        monkeypatch.setattr(
            augment, "random_resized_box", lambda width, height, draws, side=side: (40, 32, 40 + side, 32 + side)
        )
        widths.clear()
        actual, expected = (as_pixels(view.train(torch.tensor([0]), gen()))[0] for view in (quick, full))
        assert widths == [width, 400]
        if width == 400:
            np.testing.assert_array_equal(actual, expected)


def test_rotated_photo_is_reduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter to the right
    path = photo(tmp_path / "a.jpg", 800, 600, exif=exif)
    widths = decoded_widths(monkeypatch)
    quick, full = views_of_a_photo(path)
    actual, expected = (
        as_pixels(view.train(torch.zeros(20, dtype=torch.long), gen(2))).astype(int) for view in (quick, full)
    )
    assert min(widths) < 600 == max(widths)  # upright
    assert np.abs(actual - expected).mean() < 2
