"""Resized copies on disk: what they hold, when they are made again, and what a kill leaves."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cscct.data import Dataset, FileImages, Split, cache
from cscct.data.augment import make_view
from cscct.data.cache import with_copies
from cscct.data.registry import no_progress
from cscct.errors import UserError
from cscct.specs import TransformSpec

SIDE = 20


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Smooth, as photographs are."""
    few = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(few).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    sizes = [(60, 40), (33, 90), (20, 20), (12, 50), (41, 40), (64, 64)]
    paths = []
    for number, size in enumerate(sizes):
        paths.append(tmp_path / f"{number}.{'png' if number % 2 else 'jpg'}")
        picture(*size, seed=number).save(paths[-1])

    def split(members: slice) -> Split:
        return Split(FileImages(tuple(paths[members])), np.zeros(len(paths[members]), dtype=np.int64))

    return Dataset("folder", ("one",), split(slice(0, 4)), split(slice(4, 6)), channels=3)


def copied(dataset: Dataset, folder: Path, side: int = SIDE) -> Dataset:
    return with_copies(dataset, side, folder, 2, no_progress)


def images(dataset: Dataset) -> list[np.ndarray]:
    assert isinstance(dataset.train.images, FileImages)
    assert dataset.train.images.copies is not None
    return [np.asarray(dataset.train.images.copies.read(number)) for number in range(len(dataset.train))]


def test_copies_are_the_images_with_a_short_side_of_so_many_pixels(dataset: Dataset, tmp_path: Path) -> None:
    found = images(copied(dataset, tmp_path / "c"))
    assert [one.shape for one in found] == [(20, 30, 3), (55, 20, 3), (20, 20, 3), (50, 12, 3)]  # never enlarged
    assert isinstance(dataset.train.images, FileImages)
    for one, path in zip(found, dataset.train.images.paths, strict=True):
        with Image.open(path) as image:
            expected = np.asarray(image.convert("RGB").resize(one.shape[1::-1], Image.Resampling.BILINEAR))
        assert np.abs(one.astype(int) - expected).mean() < 2
    with Image.open(dataset.train.images.paths[3]) as small:
        np.testing.assert_array_equal(found[3], np.asarray(small))


def test_views_read_the_copies(dataset: Dataset, tmp_path: Path) -> None:
    spec = TransformSpec(size=16, brightness=0.2)
    plain, quick = (make_view(one.train.images, spec) for one in (dataset, copied(dataset, tmp_path / "c")))
    indices = torch.arange(4)
    assert (plain.plain(indices) - quick.plain(indices)).abs().mean() < 0.05
    for path in (dataset.train.images.paths[0], dataset.train.images.paths[1]):  # type: ignore[union-attr]
        path.unlink()
    assert quick.train(indices, torch.Generator().manual_seed(1)).shape == (4, 3, 16, 16)
    with pytest.raises(UserError, match="does not exist"):
        plain.plain(indices)


def test_copies_are_made_once_and_again_when_a_file_changes(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = images(copied(dataset, tmp_path / "c"))
    made: list[Path] = []
    real = cache._shrink
    monkeypatch.setattr(cache, "_shrink", lambda path, side: (made.append(path), real(path, side))[1])
    again = images(copied(dataset, tmp_path / "c"))
    assert not made
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert isinstance(dataset.train.images, FileImages)
    picture(60, 40, seed=99).save(dataset.train.images.paths[0])
    assert not np.array_equal(images(copied(dataset, tmp_path / "c"))[0], first[0])
    assert len(made) == 4  # the training images; those of the test did not change
    copied(dataset, tmp_path / "c", side=18)
    assert len(made) == 10


def kill_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cache._shrink

    def shrink(path: Path, side: int) -> Image.Image:
        if path.name.startswith(str(number)):
            raise KeyboardInterrupt
        return real(path, side)

    monkeypatch.setattr(cache, "_shrink", shrink)


@pytest.mark.parametrize("damage", ["none", "pixels cut", "index cut", "half an image more", "empty rows"])
def test_a_beginning_is_gone_on_with(
    damage: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = images(copied(dataset, tmp_path / "whole"))
    monkeypatch.setattr(cache, "TOGETHER", 1)
    with monkeypatch.context() as patch:
        kill_at(2, patch)
        with pytest.raises(KeyboardInterrupt):
            copied(dataset, tmp_path / "c")
    (folder,) = (tmp_path / "c").iterdir()
    assert (folder / "index").stat().st_size == 2 * cache.ROW_BYTES
    if damage == "pixels cut":
        os.truncate(folder / "pixels", (folder / "pixels").stat().st_size - 5)
    elif damage == "index cut":
        os.truncate(folder / "index", 30)
    elif damage == "half an image more":
        with (folder / "pixels").open("ab") as file:
            file.write(b"x" * 100)
    elif damage == "empty rows":  # as a power cut may leave them
        with (folder / "index").open("ab") as file:
            file.write(bytes(2 * cache.ROW_BYTES))
    found = images(copied(dataset, tmp_path / "c"))
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def change(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


def swap_height_and_width(folder: Path) -> None:
    rows = np.fromfile(folder / "index", dtype=np.int64)
    rows[1:3] = rows[[2, 1]]  # as many bytes: only the checksum tells
    rows.tofile(folder / "index")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a pixel": lambda folder: change(folder / "pixels", 100, b"\0" * 30),
    "the last pixel": lambda folder: change(folder / "pixels", (folder / "pixels").stat().st_size - 1, b"\x07"),
    "a checksum": lambda folder: change(folder / "index", 24, b"\1\2\3\4"),
    "height and width": swap_height_and_width,
    "a height": lambda folder: change(folder / "index", cache.ROW_BYTES + 8, b"\x7f"),
    "more rows": lambda folder: change(folder / "index", 4 * cache.ROW_BYTES, b"x" * 13),
    "no pixels": lambda folder: (folder / "pixels").unlink(),
    "index emptied": lambda folder: os.truncate(folder / "index", 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_copies_that_were_changed_on_disk_are_made_again(damage: str, dataset: Dataset, tmp_path: Path) -> None:
    expected = images(copied(dataset, tmp_path / "c"))
    (folder,) = (one for one in (tmp_path / "c").iterdir() if len(np.fromfile(one / "index", dtype=np.int64)) == 16)
    content = {name: (folder / name).read_bytes() for name in ("pixels", "index")}
    DAMAGE[damage](folder)
    found = images(copied(dataset, tmp_path / "c"))
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
    assert (folder / "pixels").read_bytes() == content["pixels"]  # for good
    assert (folder / "index").read_bytes()[: 4 * cache.ROW_BYTES] == content["index"]


def test_a_changed_copy_in_a_closed_folder_is_not_used(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = copied(dataset, tmp_path / "c")
    expected = images(copies)
    for folder in (tmp_path / "c").iterdir():
        change(folder / "pixels", 0, bytes(50))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "_overwrite", refuse)
    assert np.array_equal(images(copies)[0], expected[0])  # noticed when it is read, not only when the file is opened
    assert isinstance(dataset.train.images, FileImages)
    dataset.train.images.paths[0].unlink()
    with pytest.raises(UserError, match=r"0\.jpg"):
        images(copies)


def test_a_picture_replaced_by_one_of_the_same_size_and_time_gets_a_new_copy(dataset: Dataset, tmp_path: Path) -> None:
    assert isinstance(dataset.train.images, FileImages)
    path, found = dataset.train.images.paths[0], []
    for seed in (0, 99):
        picture(60, 40, seed=seed).save(path)
        os.truncate(path, 10_000)  # zeros behind the end of a JPEG mean nothing
        os.utime(path, ns=(10**18, 10**18))
        found.append(images(copied(dataset, tmp_path / "c"))[0])
    assert not np.array_equal(*found)


def test_two_at_once_make_one_set(dataset: Dataset, tmp_path: Path) -> None:
    results: list[Dataset] = []
    threads = [threading.Thread(target=lambda: results.append(copied(dataset, tmp_path / "c"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for one in results:
        assert len(images(one)) == 4
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_complete_copies_are_only_read(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's folder may be closed to us."""
    first = images(copied(dataset, tmp_path / "c"))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "FileLock", refuse)
    monkeypatch.setattr(cache, "_append", refuse)
    assert np.array_equal(images(copied(dataset, tmp_path / "c"))[0], first[0])
    with pytest.raises(UserError, match=r"cannot be kept in .*: Permission denied"):
        copied(dataset, tmp_path / "other")


def test_progress_and_room(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, int, int]] = []
    with_copies(dataset, SIDE, tmp_path / "c", 2, lambda *words: heard.append(words))
    assert heard == [
        *(("copying training images", done, 4) for done in (1, 2, 3, 4)),
        *(("copying test images", done, 2) for done in (1, 2)),
    ]
    free: Callable[[Path], os.stat_result] = lambda _: type("Usage", (), {"free": 10})()  # noqa: E731
    monkeypatch.setattr(cache.shutil, "disk_usage", free)
    with pytest.raises(UserError, match=r"Copies of 4 images .* make room"):
        copied(dataset, tmp_path / "other")


def test_a_run_with_copies(tmp_path: Path, cscct: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for part, count in (("train", 6), ("test", 2)):
        for label in range(4):
            folder = tmp_path / "photos" / part / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(count):
                picture(50, 40, seed=10 * label + number % 2).save(folder / f"{number}.jpg")
    words = ["run", "lucir+cscct", "folder", "--data-dir", str(tmp_path / "photos"), "--threads", "1", "--quiet"]
    sets = ("network.backbone=lucir-resnet", "network.depth=8", "data.transform.size=16", "train.epochs=1")
    words += [word for text in (*sets, "protocol.base=2") for word in ("--set", text)]
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}  # where Linux keeps caches
    done = cscct(*words, "--set", "data.cache=18", "--out", str(tmp_path / "run"), **env)
    assert done.returncode == 0, done.stderr
    made = list((tmp_path / "cache").rglob("pixels"))
    assert sorted(file.stat().st_size for file in made) == sorted(18 * 22 * 3 * count for count in (24, 8))
    small = cscct(*words, "--set", "data.cache=17", "--out", str(tmp_path / "other"), **env)
    assert small.returncode == 2
    assert "data.cache is 17, but images of 16 pixels are cut from larger ones: make it 18 or more" in small.stderr
    digits = cscct("run", "lucir", "digits", "--set", "data.cache=64", "--out", str(tmp_path / "digits"), **env)
    assert digits.returncode == 2
    assert "digits has none" in digits.stderr
