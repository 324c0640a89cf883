"""Tiny-ImageNet and CUB-200-2011, in small copies of their layouts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cscct.data import registry as sources
from cscct.data.base import FileImages, Split
from cscct.data.fetch import check
from cscct.errors import UserError


def request(data_dir: Path) -> sources.LoadRequest:
    return sources.LoadRequest(data_dir, skip_bad_images=False, test_fraction=0.2, seed=1, warn=pytest.fail)


def draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (200, 60, 60)).save(path, "JPEG")


def tiny_imagenet(root: Path) -> None:
    for wnid in ("n02", "n01"):
        for number in range(2):
            draw(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG")
    for number in range(2):
        draw(root / "val" / "images" / f"val_{number}.JPEG")
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n")


def cub200(root: Path) -> None:
    names = ["001.Gull/a.jpg", "001.Gull/b.jpg", "002.Wren/c.jpg", "002.Wren/d.jpg"]
    for name in names:
        draw(root / "images" / name)
    (root / "classes.txt").write_text("1 001.Gull\n2 002.Wren\n")
    (root / "images.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, start=1)))
    (root / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n4 2\n")
    (root / "train_test_split.txt").write_text("1 1\n2 0\n3 0\n4 1\n")


def files(split: Split) -> dict[str, int]:
    assert isinstance(split.images, FileImages)
    return dict(zip((path.name for path in split.images.paths), split.labels.tolist(), strict=True))


def test_tiny_imagenet(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    tiny_imagenet(root)
    dataset = sources.load("tiny-imagenet", request(tmp_path))
    assert dataset.class_names == ("n01", "n02")
    assert files(dataset.train) == {"n01_0.JPEG": 0, "n01_1.JPEG": 0, "n02_0.JPEG": 1, "n02_1.JPEG": 1}
    assert files(dataset.test) == {"val_0.JPEG": 1, "val_1.JPEG": 0}
    with (root / "val" / "val_annotations.txt").open("a") as file:
        file.write("val_2.JPEG n03 0 0 9 9\n")
    with pytest.raises(UserError, match=r"Line 3 .* n03 is not in wnids\.txt"):
        sources.load("tiny-imagenet", request(root))


def test_cub200(tmp_path: Path) -> None:
    root = tmp_path / "CUB_200_2011"
    cub200(root)
    dataset = sources.load("cub200", request(tmp_path))
    assert dataset.class_names == ("001.Gull", "002.Wren")
    assert files(dataset.train) == {"a.jpg": 0, "d.jpg": 1}
    assert files(dataset.test) == {"b.jpg": 0, "c.jpg": 1}
    assert check("cub200", request(root))["test_images"] == 2
    (root / "train_test_split.txt").write_text("1 1\n2 0\n3 0\n")
    with pytest.raises(UserError, match=r"image 4 has no valid entry"):
        sources.load("cub200", request(root))


@pytest.mark.parametrize(
    ("name", "write", "lost"),
    [
        ("tiny-imagenet", tiny_imagenet, "val/images/val_1.JPEG"),
        ("cub200", cub200, "images/002.Wren/c.jpg"),
    ],
)
def test_missing_files(name: str, write: Callable[[Path], None], lost: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"was not found: .* set --data-dir"):
        sources.load(name, request(tmp_path))
    write(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(UserError, match=rf"cannot be read as images: {lost}"):
        sources.load(name, request(tmp_path))
