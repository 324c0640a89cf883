"""Images in all accepted forms."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cscct import UserError
from cscct.data.inputs import ImageFormat, ItemReader, as_items
from cscct.specs import TransformSpec
from small_models import colours_model, pictures

FORMAT = ImageFormat(TransformSpec(size=16))


def picture(mode: str = "RGB", size: tuple[int, int] = (24, 20)) -> Image.Image:
    return Image.fromarray(np.full((size[1], size[0], 3), (200, 60, 60), np.uint8)).convert(mode)


def odd_files(folder: Path) -> dict[str, Path]:
    """Unusual images, all red except a grey one."""
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
    crops = ItemReader(list(files.values()), FORMAT).pixels(range(len(files)))
    for name, crop in zip(files, crops, strict=True):
        assert isinstance(crop, np.ndarray), name
        assert crop.shape == (16, 16, 3)
        wanted = (117, 117, 117) if name == "sixteen.png" else (200, 60, 60)
        assert np.abs(crop.mean(axis=(0, 1)) - wanted).max() < 40, name
    model = colours_model()
    assert set(model.predict([path for name, path in files.items() if name != "sixteen.png"])) == {"red"}


def test_damaged_files(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.fromarray(pictures((200, 60, 60), 1)[0]).resize((300, 300)).save(whole, "JPEG")
    (tmp_path / "truncated.jpg").write_bytes(whole.getvalue()[:2000])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("not an image")
    picture().save(tmp_path / "good.png")
    paths = [tmp_path / name for name in ("good.png", "truncated.jpg", "empty.png", "text.jpg", "missing.jpg")]
    outcomes = ItemReader(paths, FORMAT).pixels(range(len(paths)))
    assert [isinstance(outcome, UserError) for outcome in outcomes] == [False, True, True, True, True]
    for index, error in list(enumerate(outcomes))[1:]:
        assert paths[index].name in str(error)
        with pytest.raises(UserError, match=paths[index].name):
            colours_model().predict(paths[index])


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(size=(200, 200)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "pixels" in str(ItemReader([tmp_path / "bomb.png"], FORMAT).pixels([0])[0])


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
    crops = ItemReader(items, FORMAT).pixels(range(len(items)))
    assert [crop.tolist() for crop in crops] == [np.full((16, 16, 3), 100).tolist()] * 2


@pytest.mark.parametrize(
    ("shape", "channels", "count"),
    [((3, 8, 9), 3, 1), ((3, 8, 9), 1, 3), ((8, 9, 3), 3, 1), ((8, 9, 3), 1, 1), ((8, 9, 1), 1, 1), ((8, 9), 1, 1)],
)
def test_arrays_with_a_single_image(shape: tuple[int, ...], channels: int, count: int) -> None:
    """Only (3, height, width) depends on the channels of the model."""
    items = as_items(np.zeros(shape, np.uint8), channels)
    assert len(items) == count
    assert {item.shape[:2] for item in items} == {(8, 9)}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (np.full((2, 3, 8, 9), 100.0), "have values from 100.0 to 100.0: floats must lie between 0 and 1"),
        (np.full((2, 3, 8, 9), np.nan), "between 0 and 1"),
        (np.full((2, 3, 8, 9), -1), "between 0 and 255"),
        (np.zeros((2, 5, 8, 9), np.uint8), "1, 3 or 4 channels"),
        (np.zeros((2, 3, 0, 9), np.uint8), "shape"),
        (np.zeros(4, np.uint8), "shape"),
        ([np.zeros((2, 3, 8, 9), np.uint8)], "must be one image"),
        (7, "arrays, tensors, PIL images, paths"),
        ([None], "arrays, tensors, PIL images, paths"),
        ({"a": 1}, "arrays, tensors, PIL images, paths"),
    ],
)
def test_invalid_images(images: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        as_items(images)


class Pairs(torch.utils.data.Dataset):  # type: ignore[type-arg]
    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(pictures((200, 60, 60), 1, 10 + index)[0]), index % 2


class Dictionaries(Pairs):
    classes = ()  # type: ignore[assignment]

    def __getitem__(self, index: int) -> dict[str, object]:  # type: ignore[override]
        return {"img": pictures((200, 60, 60), 1, 10 + index)[0], "label": f"class {index % 2}"}


@pytest.mark.parametrize(("dataset", "labels"), [(Pairs(), {"cat", "dog"}), (Dictionaries(), {"class 0", "class 1"})])
def test_torch_dataset(dataset: Pairs, labels: set[str]) -> None:
    assert len(as_items(dataset)) == 4
    model = colours_model()
    assert model.predict(dataset).tolist() == ["red"] * 4
    model.learn(dataset)
    assert set(model.class_names) == {"red", "blue"} | labels


def test_a_dataset_without_images_is_rejected() -> None:
    class Empty(Pairs):
        def __getitem__(self, index: int) -> dict[str, object]:  # type: ignore[override]
            return {"picture": picture()}

    with pytest.raises(UserError, match="Entry 0 of the dataset has no image"):
        as_items(Empty())


def test_images_learned_as_stored_keep_their_pixels() -> None:
    """A grey 8x8 model reads arrays of its size unchanged, and resizes everything else."""
    grey = ImageFormat(TransformSpec(), channels=1, size=(8, 8))
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)
    read = ItemReader(as_items(pixels), grey).pixels(range(3))
    np.testing.assert_array_equal(np.stack(read), pixels.transpose(0, 2, 3, 1))
    assert ItemReader([picture()], grey).pixels([0])[0].shape == (8, 8, 1)  # type: ignore[union-attr]
    assert ItemReader(as_items(pixels), grey).view().plain(torch.tensor([2])).shape == (1, 1, 8, 8)
