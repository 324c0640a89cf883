"""Images as users hold them."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cscct import UserError
from cscct.classifier.images import ItemView, as_items, list_images, read_folder, read_images
from cscct.specs import TransformSpec
from small_models import colours_model, pictures

SPEC = TransformSpec(size=16)


def picture(mode: str = "RGB", size: tuple[int, int] = (24, 20)) -> Image.Image:
    return Image.fromarray(np.full((size[1], size[0], 3), (200, 60, 60), np.uint8)).convert(mode)


def odd_files(folder: Path) -> dict[str, Path]:
    """Images that break naive loaders; all of them red, but for the grey one."""
    folder.mkdir()
    turned = picture(size=(40, 20))
    exif = turned.getexif()
    exif[0x0112] = 6
    saved = {
        "cmyk.jpg": lambda path: picture("CMYK").save(path),
        "sixteen.png": lambda path: Image.fromarray(np.full((20, 24), 30000, np.uint16)).save(path),
        "palette.png": lambda path: picture("P").save(path, transparency=0),
        "alpha.png": lambda path: picture("RGBA").save(path),
        "turned.jpg": lambda path: turned.save(path, exif=exif),
        "animated.gif": lambda path: picture().save(path, save_all=True, append_images=[picture("L").convert("RGB")]),
        "one.png": lambda path: picture(size=(1, 1)).save(path),
        "wide.png": lambda path: picture(size=(10_000, 12)).save(path),
        "line.png": lambda path: picture(size=(10_000, 1)).save(path),
        "tall.jpg": lambda path: picture(size=(3, 9_000)).save(path),
        "UPPER.JPEG": lambda path: picture().save(path),
    }
    for name, save in saved.items():
        save(folder / name)
    return {name: folder / name for name in saved}


def test_odd_images_are_read(tmp_path: Path) -> None:
    files = odd_files(tmp_path / "odd")
    crops = ItemView(list(files.values()), SPEC).crops(range(len(files)))
    for name, crop in zip(files, crops, strict=True):
        assert isinstance(crop, np.ndarray), name
        assert crop.shape == (16, 16, 3)
        wanted = (117, 117, 117) if name == "sixteen.png" else (200, 60, 60)
        assert np.abs(crop.mean(axis=(0, 1)) - wanted).max() < 40, name
    readable, errors = read_images(files.values())
    assert len(readable) == len(files)
    assert errors == {}
    model = colours_model()
    assert set(model.predict([path for name, path in files.items() if name != "sixteen.png"])) == {"red"}


def test_damaged_files_are_told_one_by_one(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.fromarray(pictures((200, 60, 60), 1)[0]).resize((300, 300)).save(whole, "JPEG")
    (tmp_path / "truncated.jpg").write_bytes(whole.getvalue()[:2000])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("not an image")
    picture().save(tmp_path / "good.png")
    paths = [tmp_path / name for name in ("good.png", "truncated.jpg", "empty.png", "text.jpg", "missing.jpg")]
    readable, errors = read_images(paths)
    assert readable == [0]
    assert set(errors) == {1, 2, 3, 4}
    for index, text in errors.items():
        assert paths[index].name in text
        with pytest.raises(UserError, match=paths[index].name):
            colours_model().predict(paths[index])


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(size=(200, 200)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "pixels" in read_images([tmp_path / "bomb.png"])[1][0]


@pytest.mark.parametrize(
    "images",
    [
        np.full((2, 3, 8, 9), 100, np.uint8),
        np.full((2, 8, 9, 3), 100, np.uint8),
        np.full((2, 8, 9, 4), 100, np.uint8),
        np.full((2, 8, 9), 100, np.int64),
        np.full((2, 1, 8, 9), 100 / 255, np.float64),
        torch.full((2, 3, 8, 9), 100 / 255),
        np.full((2, 8, 9, 3), 100 * 257, np.uint16),
        [np.full((8, 9, 3), 100, np.uint8), torch.full((3, 8, 9), 100 / 255)],
        [Image.new("RGB", (9, 8), (100, 100, 100)), Image.new("L", (9, 8), 100)],
    ],
)
def test_arrays_of_all_kinds(images: object) -> None:
    items = as_items(images)
    crops = ItemView(items, SPEC).crops(range(len(items)))
    assert [crop.tolist() for crop in crops] == [np.full((16, 16, 3), 100).tolist()] * 2


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (np.full((2, 3, 8, 9), 100.0), "reach from 100.0 to 100.0: floats must lie between 0 and 1"),
        (np.full((2, 3, 8, 9), np.nan), "between 0 and 1"),
        (np.full((2, 3, 8, 9), -1), "between 0 and 255"),
        (np.zeros((2, 5, 8, 9), np.uint8), "1, 3 or 4 channels"),
        (np.zeros((2, 3, 0, 9), np.uint8), "shape"),
        (np.zeros(4, np.uint8), "shape"),
        ([np.zeros((2, 3, 8, 9), np.uint8)], "each entry must be one image"),
        (7, "arrays, PIL images, paths"),
        ([None], "arrays, PIL images, paths"),
        ({"a": 1}, "arrays, PIL images, paths"),
    ],
)
def test_what_is_no_image_is_told(images: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        as_items(images)


def test_a_folder_is_listed_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    picture().save(shared / "linked.png")
    root = tmp_path / "root"
    (root / "red" / "nested").mkdir(parents=True)
    picture().save(root / "red" / "a.png")
    picture().save(root / "red" / "nested" / "b.png")
    picture().save(root / "loose.png")
    (root / "red" / "notes.txt").write_text("mine")
    (root / "red" / ".hidden.png").write_text("mine")
    (root / "red" / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (root / "red" / "nowhere.png").symlink_to(tmp_path / "nothing")
    (root / "red" / "nested" / "loop").symlink_to(root / "red")
    os.mkfifo(root / "red" / "pipe.png")
    (root / "blue").symlink_to(shared)
    (root / "empty").mkdir()
    found = read_folder(root)
    assert list(zip([path.name for path in found.paths], found.labels, strict=True)) == [
        ("linked.png", "blue"),
        ("a.png", "red"),
        ("b.png", "red"),
    ]
    assert sorted((one.kind, Path(one.path).name) for one in found.problems) == [
        ("few", "empty"),
        ("skipped", "loose.png"),
        ("skipped", "notes.txt"),
        ("skipped", "nowhere.png"),
        ("skipped", "pipe.png"),
        ("unreadable", "cut.jpg"),
    ]
    assert len(list_images(root / "red")) == 2


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A file may have one, for its name is not kept; a class may not."""
    (tmp_path / "red").mkdir()
    for i, image in enumerate(pictures((200, 60, 60), 3)):
        Image.fromarray(image).save(os.fsencode(tmp_path) + b"/red/caf\xe9%d.png" % i)
    (tmp_path / "red" / os.fsdecode(b"caf\xe9.txt")).write_text("mine")
    model = colours_model().learn(tmp_path)
    assert model.report_.images == {"red": 3}
    assert model.report_.problems[0].path.endswith("caf\\xe9.txt")
    model.save(tmp_path / "m")
    os.rename(tmp_path / "red", os.fsencode(tmp_path) + b"/r\xe9d")
    with pytest.raises(UserError, match="not valid text"):
        model.learn(tmp_path)


def test_folders_without_classes_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no class folders"):
        read_folder(tmp_path)
    (tmp_path / "red").mkdir()
    with pytest.raises(UserError, match="no images in the class folders"):
        read_folder(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        read_folder(tmp_path / "missing")
    with pytest.raises(UserError, match="no images in"):
        list_images(tmp_path / "red")


def test_accents_that_are_taken_apart_make_no_other_class(tmp_path: Path) -> None:
    for name in ("caf\u00e9", "cafe\u0301"):
        (tmp_path / name).mkdir()
        picture().save(tmp_path / name / "a.png")
    assert set(read_folder(tmp_path).labels) == {"caf\u00e9"}


def test_what_is_wrong_with_all_images_is_told(tmp_path: Path) -> None:
    (tmp_path / "red").mkdir()
    (tmp_path / "red" / "a.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(UserError, match=r"that can be read, for example .*a\.heic: not an image file"):
        read_folder(tmp_path)
    picture().save(tmp_path / "loose.png")
    picture().save(tmp_path / "red" / "b.png")
    whole = (tmp_path / "red" / "b.png").read_bytes()
    (tmp_path / "red" / "b.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"No image can be read: .*b\.png"):
        colours_model().learn(tmp_path)
