import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cscct.data import registry as sources
from cscct.data.base import Dataset, FileImages, Split
from cscct.data.datasets import folders
from cscct.errors import UserError
from pictures import draw

REAL = os.environ.get("CSCCT_DATA")


def request(
    data_dir: Path | None,
    skip: bool = False,
    fraction: float = 0.25,
    seed: int = 1,
    warnings: list[str] | None = None,
) -> sources.LoadRequest:
    def unexpected(text: str) -> None:
        raise AssertionError(f"unexpected warning: {text}")

    warn = unexpected if warnings is None else warnings.append
    return sources.LoadRequest(data_dir, skip, fraction, seed, warn)


def make(root: Path, tree: dict[str, int]) -> Path:
    """`tree`: number of images of each class folder."""
    for folder, count in tree.items():
        (root / folder).mkdir(parents=True)
        for i in range(count):
            draw(root / folder / f"{i}.png")
    return root


def relative(split: Split, root: Path) -> list[str]:
    assert isinstance(split.images, FileImages)
    return [path.relative_to(root).as_posix() for path in split.images.paths]


def load(root: Path, **options: object) -> Dataset:
    return sources.load("folder", request(root, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_train_and_test_folders(tmp_path: Path, test_name: str) -> None:
    make(tmp_path, {"train/dog": 2, "train/Cat": 3, f"{test_name}/dog": 1, f"{test_name}/Cat": 2})
    (tmp_path / "train" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "train" / "dog" / ".hidden.jpg").write_bytes(b"x")
    (tmp_path / "train" / ".cache").mkdir()
    (tmp_path / "train" / "README.txt").write_text("beside the classes, so nobody takes it for an image")
    warnings: list[str] = []
    dataset = load(tmp_path, warnings=warnings)
    assert len(warnings) == 1
    assert ".hidden.jpg" in warnings[0]
    assert dataset.class_names == ("Cat", "dog")
    assert dataset.channels == 3
    assert relative(dataset.train, tmp_path / "train") == [
        "Cat/0.png",
        "Cat/1.png",
        "Cat/2.png",
        "dog/0.png",
        "dog/1.png",
    ]
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert dataset.train.labels.dtype == np.int64
    assert relative(dataset.test, tmp_path / test_name) == ["Cat/0.png", "Cat/1.png", "dog/0.png"]
    assert dataset.test.labels.tolist() == [0, 0, 1]


def test_csv_file_and_names_that_differ_in_case(tmp_path: Path) -> None:
    make(tmp_path, {"x": 4, "y": 3})
    rows = [f"x/{i}.png,Cat" for i in range(4)] + [f"y/{i}.png,cat" for i in range(3)] + ["y/missing.png,cat"]
    listed = tmp_path / "labels.csv"
    listed.write_text("\n".join(["path,label", *rows]))
    with pytest.raises(UserError, match=r"missing.png \(does not exist\)"):
        load(listed, warnings=[])
    warnings: list[str] = []
    dataset = load(listed, skip=True, warnings=warnings)
    assert dataset.class_names == folders.folder_classes(request(listed)) == ("Cat", "cat")
    assert sorted(relative(dataset.train, tmp_path) + relative(dataset.test, tmp_path)) == sorted(
        row.partition(",")[0] for row in rows[:-1]
    )
    assert any("differs from Cat only in case" in text for text in warnings)


@pytest.mark.parametrize("prefix", ["train/", ""])
def test_split_without_a_test_folder(tmp_path: Path, prefix: str) -> None:
    make(tmp_path, {f"{prefix}a": 12, f"{prefix}b": 2, f"{prefix}c": 8})
    dataset = load(tmp_path)
    train, test = relative(dataset.train, tmp_path), relative(dataset.test, tmp_path)
    assert np.bincount(dataset.test.labels).tolist() == [3, 1, 2]
    assert np.bincount(dataset.train.labels).tolist() == [9, 1, 6]
    assert not set(train) & set(test)
    assert len(train) + len(test) == 22
    assert relative(load(tmp_path).test, tmp_path) == test
    assert relative(load(tmp_path, seed=2).test, tmp_path) != test


def test_split_of_a_class_does_not_depend_on_the_others(tmp_path: Path) -> None:
    make(tmp_path, {"b": 20, "c": 20})
    before = [name for name in relative(load(tmp_path).test, tmp_path) if name.startswith("c/")]
    make(tmp_path, {"a": 20})
    after = [name for name in relative(load(tmp_path).test, tmp_path) if name.startswith("c/")]
    assert before == after
    assert len(before) == 5


@pytest.mark.parametrize(("fraction", "expected"), [(0.01, 1), (0.99, 3)])
def test_each_side_of_the_split_gets_an_image(tmp_path: Path, fraction: float, expected: int) -> None:
    make(tmp_path, {"a": 4, "b": 4})
    assert np.bincount(load(tmp_path, fraction=fraction).test.labels).tolist() == [expected, expected]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_fraction_out_of_range(tmp_path: Path, fraction: float) -> None:
    make(tmp_path, {"a": 4, "b": 4})
    with pytest.raises(UserError, match="between 0 and 1"):
        load(tmp_path, fraction=fraction)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": 3, "b": 1}, "Class b has one image"),
        ({"a": 3, "b": 0}, "class folder .*/b is empty"),
        ({"a": 3}, "has 1 class folder: at least two"),
        ({}, "has 0 class folders"),
        ({"train/a": 2, "train/b": 2, "test/a": 1, "test/z": 1}, "test has classes that .*: z"),
        ({"train/a": 2, "train/b": 2, "test/a": 1}, "class b has no test images"),
        ({"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 0}, "class folder .*test/b is empty"),
        ({"test/a": 2, "test/b": 2}, "a folder 'test' but no folder 'train'"),
    ],
)
def test_wrong_trees(tmp_path: Path, tree: dict[str, int], message: str) -> None:
    make(tmp_path, tree)
    with pytest.raises(UserError, match=message):
        load(tmp_path)


def test_folder_must_be_named_and_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CSCCT_DATA", raising=False)
    with pytest.raises(UserError, match="name it with --data-dir"):
        sources.load("folder", request(None))
    with pytest.raises(UserError, match="nowhere is not a folder"):
        load(tmp_path / "nowhere")


def spoil(root: Path) -> set[str]:
    """Put one of each kind of bad file in class a, an image with another suffix, and one in a subfolder."""
    whole = draw(root / "a" / "whole.jpg", size=(64, 64)).read_bytes()
    (root / "a" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "a" / "text.jpg").write_text("no picture")
    (root / "a" / "empty.png").write_bytes(b"")
    (root / "a" / "gone.png").symlink_to(root / "nowhere.png")
    draw(root / "a" / "deeper" / "x.png")
    draw(root / "loose.png")
    (root / "a" / "photo.jfif").write_bytes(whole)
    os.mkfifo(root / "a" / "pipe.jpg")
    inside = ("cut.jpg", "text.jpg", "empty.png", "pipe.jpg", "gone.png")
    return {f"a/{name}" for name in inside} | {"loose.png"}


def test_bad_files_are_counted_named_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "listing", lambda names: ", ".join(names))
    bad = spoil(make(tmp_path, {"a": 4, "b": 4}))
    with pytest.raises(UserError, match=r"6 of 17 files in .* cannot be read as images: ") as caught:
        load(tmp_path)
    text = str(caught.value)
    assert text.endswith("; remove them or pass --skip-bad-images.")
    for name in bad:
        assert f"{name} (" in text
    assert "a/cut.jpg (image file is truncated" in text
    assert "a/pipe.jpg (not a regular file, or a broken link)" in text
    assert "deeper" not in text  # subfolders belong to the class
    assert "photo.jfif" not in text  # it starts like an image
    assert "whole.jpg" not in text


def test_bad_files_are_skipped_with_one_warning(tmp_path: Path) -> None:
    bad = spoil(make(tmp_path, {"a": 4, "b": 4}))
    warnings: list[str] = []
    dataset = load(tmp_path, skip=True, warnings=warnings)
    assert len(warnings) == 1
    assert "6 of 17 files" in warnings[0]
    used = relative(dataset.train, tmp_path) + relative(dataset.test, tmp_path)
    assert len(used) == 11
    assert {"a/deeper/x.png", "a/photo.jfif"} <= set(used)
    assert not bad & set(used)


def add_strays(root: Path) -> list[str]:
    """Files of other programs in class a."""
    for name, content in {
        "Thumbs.db": b"\xd0\xcf\x11\xe0",
        "desktop.ini": b"[x]",
        "notes.txt": b"hello",
        "e": b"",
    }.items():
        (root / "a" / name).write_bytes(content)
    (root / "a" / ".DS_Store").write_bytes(b"x")
    (root / "a" / "gone.txt").symlink_to(root / "nowhere.txt")
    return ["a/Thumbs.db", "a/desktop.ini", "a/e", "a/gone.txt", "a/notes.txt"]


def test_files_that_are_not_images_are_ignored_with_one_warning(tmp_path: Path) -> None:
    names = add_strays(make(tmp_path, {"a": 4, "b": 4}))
    warnings: list[str] = []
    dataset = load(tmp_path, warnings=warnings)
    assert len(dataset.train) + len(dataset.test) == 8
    assert warnings == [f"Ignored 5 files that are not images in {tmp_path}: {', '.join(names)}."]


def test_a_class_without_images(tmp_path: Path) -> None:
    make(tmp_path, {"a": 4, "b": 0})
    (tmp_path / "b" / "notes.txt").write_text("pictures of b are to come")
    with pytest.raises(UserError, match=r"No readable image is left in .* for b"):
        load(tmp_path, warnings=[])


@pytest.mark.parametrize("place", [b"a/caf\xe9.png", b"caf\xe9/0.png"], ids=["file", "class"])
def test_names_that_are_not_utf8_are_refused(place: bytes, tmp_path: Path) -> None:
    make(tmp_path, {"a": 2, "b": 2})
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), place)))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((tmp_path / "b" / "0.png").read_bytes())
    with pytest.raises(UserError, match=r"caf\\xe9.* is not valid UTF-8") as caught:
        load(tmp_path)
    str(caught.value).encode()


def test_decompression_bomb_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    make(tmp_path, {"a": 2, "b": 2})
    draw(tmp_path / "b" / "large.png", size=(30, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # Pillow would only warn about 600
    with pytest.raises(UserError, match=r"1 of 5 files .*b/large.png \(it claims 30 x 20 pixels\)"):
        load(tmp_path)
    assert not recwarn.list


@pytest.mark.parametrize(
    "name",
    ["a.JPG", "a.jpeg", "a.png", "a.bmp", "a.gif", "a.webp", "a.ppm", "a.tif", "a.TIFF"],
)
def test_kinds_of_files(tmp_path: Path, name: str) -> None:
    make(tmp_path, {"a": 1, "b": 2})
    draw(tmp_path / "a" / name)
    assert len(load(tmp_path).train) == 2


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """The 100 class folders, each with one image for training and one for testing."""
    picture = draw(tmp_path / "x.jpg").read_bytes()
    for wnid in folders.subset_wnids():
        for part in ("train", "val"):
            folder = tmp_path / "imagenet-subset" / part / wnid
            folder.mkdir(parents=True)
            (folder / f"{wnid}_1.JPEG").write_bytes(picture)
    return tmp_path / "imagenet-subset"


def test_the_list_of_wnids() -> None:
    wnids = folders.subset_wnids()
    assert len(set(wnids)) == 100
    assert list(wnids) == sorted(wnids)
    assert wnids[0] == "n01440764"
    assert all(len(wnid) == 9 and wnid[0] == "n" and wnid[1:].isdigit() for wnid in wnids)


@pytest.mark.parametrize("parent", [True, False])
def test_imagenet_subset(imagenet: Path, parent: bool) -> None:
    draw(imagenet / "train" / "n99999999" / "other.jpg")  # another class of ImageNet
    dataset = sources.load("imagenet-subset", request(imagenet.parent if parent else imagenet))
    assert dataset.class_names == folders.subset_wnids()
    assert dataset.train.labels.tolist() == list(range(100))
    assert relative(dataset.test, imagenet)[99] == f"val/{dataset.class_names[99]}/{dataset.class_names[99]}_1.JPEG"


def test_imagenet_subset_lacks_classes(imagenet: Path) -> None:
    for part, wnid in (("train", "n01440764"), ("val", "n01440764"), ("val", "n01443537")):
        (imagenet / part / wnid).rename(imagenet / f"{part}-{wnid}")
    with pytest.raises(UserError, match=r"lacks 3 of the 200 class folders .* first is train/n01440764"):
        sources.load("imagenet-subset", request(imagenet))


def test_imagenet_subset_is_checked_without_decoding(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = imagenet / "train" / "n01440764"
    whole = draw(folder / "whole.JPEG", size=(64, 64)).read_bytes()
    middle = len(whole) // 2
    draw(folder / "png.png").rename(folder / "png.JPEG")  # ImageNet has one of these
    (folder / "damaged-inside.JPEG").write_bytes(whole[:middle] + bytes(50) + whole[middle + 50 :])
    (folder / "padded.JPEG").write_bytes(whole + bytes(1000))
    (folder / "garbage-64.JPEG").write_bytes(whole + b"x" * 64)

    def no_decoding(image: Image.Image) -> None:
        raise AssertionError("an image was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", no_decoding)
    dataset = sources.load("imagenet-subset", request(imagenet))
    assert len(dataset.train) == 105
    (folder / "cut.JPEG").write_bytes(whole[:-100])
    (folder / "garbage-65.JPEG").write_bytes(whole + b"x" * 65)
    (folder / "text.JPEG").write_text("no picture")
    with pytest.raises(UserError, match=r"3 of 208 files .*cut.JPEG \(truncated\), .*text.JPEG \(not an image\)"):
        sources.load("imagenet-subset", request(imagenet))
    warnings: list[str] = []
    dataset = sources.load("imagenet-subset", request(imagenet, skip=True, warnings=warnings))
    assert (len(dataset.train), len(warnings)) == (105, 1)


@pytest.mark.skipif(not REAL or not (Path(REAL) / "photos").is_dir(), reason="set CSCCT_DATA to a folder with photos")
def test_real_photographs() -> None:
    root = Path(REAL or "") / "photos"
    dataset = load(root)
    assert len(dataset.class_names) == 20
    assert np.bincount(dataset.train.labels).tolist() == [55] * 20
    assert len(dataset.test) > 300
