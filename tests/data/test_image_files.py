"""Decoding and detection of image files."""

import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image, features

from cscct.data import image_files
from cscct.errors import UserError
from pictures import draw


@pytest.mark.parametrize(
    ("name", "mode"),
    [("x.jpg", "CMYK"), ("x.jpg", "L"), ("x.png", "P"), ("x.png", "RGBA"), ("x.png", "LA"), ("x.png", "1")],
)
def test_read_image_gives_rgb(tmp_path: Path, name: str, mode: str, recwarn: pytest.WarningsRecorder) -> None:
    path = draw(tmp_path / name, mode=mode)
    image = image_files.read_image(path)
    assert (image.mode, image.size) == ("RGB", (12, 9))
    with Image.open(path) as original:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(original.convert("RGB")))
    assert not recwarn.list


def test_palette_with_transparency(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putdata([0, 1])
    image.save(tmp_path / "x.png", transparency=bytes([0, 128]))
    assert np.asarray(image_files.read_image(tmp_path / "x.png")).tolist() == [[[10, 20, 30], [40, 50, 60]]]
    assert not recwarn.list


@pytest.mark.parametrize("name", ["x.png", "x.tif"])
def test_sixteen_bits_are_scaled(tmp_path: Path, name: str) -> None:
    Image.fromarray(np.array([[0, 256, 32768, 65535]], dtype=np.uint16)).save(tmp_path / name)
    assert np.asarray(image_files.read_image(tmp_path / name))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_exif_orientation_is_followed(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees to the right
    image.save(tmp_path / "x.png", exif=exif)
    upright = image_files.read_image(tmp_path / "x.png")
    assert upright.size == (1, 2)
    assert upright.getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(("suffix", "package"), [(".heic", "pillow_heif"), (".avif", "PIL")])
def test_photos_of_phones(tmp_path: Path, suffix: str, package: str) -> None:
    """They are found by their content, turned upright, and damaged ones are reported."""
    if suffix == ".heic":
        pytest.importorskip(package, reason="pip install 'cscct[heif]'").register_heif_opener()
    elif not features.check("avif"):
        pytest.skip("needs Pillow 11.3")
    image = Image.new("RGB", (64, 32), (200, 60, 60))
    image.paste((60, 60, 200), (32, 0, 64, 32))
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / f"x{suffix}"
    image.save(path, exif=exif.tobytes())
    path = path.rename(tmp_path / "x.image")
    assert image_files.looks_like_image(path)
    assert image_files.quick_fault(path) is None
    upright = np.asarray(image_files.read_image(path))
    assert upright.shape == (64, 32, 3)
    np.testing.assert_allclose(upright[8, 16], (200, 60, 60), atol=30)
    np.testing.assert_allclose(upright[56, 16], (60, 60, 200), atol=30)
    path.write_bytes(path.read_bytes()[:-200])
    assert image_files.full_fault(path)


@pytest.mark.parametrize(("brand", "advice"), [(b"heic", "cscct\\[heif\\]"), (b"avif", "Pillow 11.3")])
def test_decoders_that_are_missing(tmp_path: Path, brand: bytes, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(features, "check", lambda name: False)
    path = tmp_path / "x.jpg"
    path.write_bytes(b"\0\0\0\x14ftyp" + brand + b"\0\0\0\0mif1")
    with pytest.raises(UserError, match=advice):
        image_files.read_image(path)
    assert "convert" in str(image_files.quick_fault(path))


def test_read_image_names_the_bad_file(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_text("no picture")
    with pytest.raises(UserError, match=r"x.jpg cannot be read: not an image"):
        image_files.read_image(tmp_path / "x.jpg")
    with pytest.raises(UserError, match=r"y.jpg does not exist"):
        image_files.read_image(tmp_path / "y.jpg")
    (tmp_path / "x.jpg").write_bytes(draw(tmp_path / "z.jpg", size=(64, 64)).read_bytes()[:-400])
    with pytest.raises(UserError, match=r"x.jpg cannot be read: .*truncated"):
        image_files.read_image(tmp_path / "x.jpg")


def test_postscript_is_not_opened(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(tmp_path / "x.jpg")
    with pytest.raises(UserError, match="not an image"):
        image_files.read_image(tmp_path / "x.jpg")


@pytest.mark.parametrize("size", [(5, 40), (7, 7), (40, 5), (1, 1)])
def test_tiny_jpegs_are_read(size: tuple[int, int], tmp_path: Path) -> None:
    """An eighth of the side is less than a pixel."""
    Image.new("RGB", size, (200, 10, 10)).save(tmp_path / "x.jpg")
    image, full = image_files.read_reduced(tmp_path / "x.jpg", lambda *_: 8)
    assert full == size
    assert min(image.size) >= 1
    assert image_files.full_fault(tmp_path / "x.jpg") is None


@pytest.mark.parametrize("name", ["x.jpg", "x.tif", "x.png"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8, 9])
def test_full_size_is_that_of_the_upright_picture(name: str, orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (160, 80)).save(tmp_path / name, exif=exif)
    upright = image_files.read_image(tmp_path / name).size
    assert upright == ((80, 160) if orientation in (6, 8) else (160, 80))
    for times in (1, 2, 4, 8):
        ask = Mock(return_value=times)
        image, full = image_files.read_reduced(tmp_path / name, ask)
        assert full == upright
        assert image.width * full[1] == image.height * full[0]
        if name == "x.jpg":
            assert image.width == full[0] // times
            ask.assert_called_once_with(*upright)


@pytest.mark.parametrize("name", ["photo.jfif", "photo", "photo.jpg"])
def test_images_are_known_by_suffix_or_content(name: str, tmp_path: Path) -> None:
    draw(tmp_path / "x.jpg").rename(tmp_path / name)
    assert image_files.looks_like_image(tmp_path / name)
    (tmp_path / name).write_text("P5 is a kind of image, but this is a note.")
    assert image_files.looks_like_image(tmp_path / name) == (name == "photo.jpg")
