"""Resized copies on disk: content, updates and interrupted copying."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cscct.data import Dataset, FileImages, Split, resized_copies
from cscct.data.augment import make_view
from cscct.data.registry import no_progress
from cscct.data.resized_copies import with_resized_copies
from cscct.errors import UserError
from cscct.specs import TransformSpec

SIDE = 20


def picture(width: int, height: int, seed: int) -> Image.Image:
    """A smooth image."""
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
    return with_resized_copies(dataset, side, folder, 2, no_progress)


def images(dataset: Dataset) -> list[np.ndarray]:
    assert isinstance(dataset.train.images, FileImages)
    return [np.asarray(dataset.train.images.copies.read(number)) for number in range(len(dataset.train))]


def test_size_and_content_of_copies(dataset: Dataset, tmp_path: Path) -> None:
    copies = images(copied(dataset, tmp_path / "c"))
    assert [copy.shape for copy in copies] == [(20, 30, 3), (55, 20, 3), (20, 20, 3), (50, 12, 3)]  # never enlarged
    assert isinstance(dataset.train.images, FileImages)
    for copy, path in zip(copies, dataset.train.images.paths, strict=True):
        with Image.open(path) as image:
            expected = np.asarray(image.convert("RGB").resize(copy.shape[1::-1], Image.Resampling.BILINEAR))
        assert np.abs(copy.astype(int) - expected).mean() < 2
    with Image.open(dataset.train.images.paths[3]) as small:
        np.testing.assert_array_equal(copies[3], np.asarray(small))


def test_views_read_the_copies(dataset: Dataset, tmp_path: Path) -> None:
    spec = TransformSpec(size=16, brightness=0.2)
    plain, quick = (make_view(source.train.images, spec) for source in (dataset, copied(dataset, tmp_path / "c")))
    indices = torch.arange(4)
    assert (plain.plain(indices) - quick.plain(indices)).abs().mean() < 0.05
    for path in (dataset.train.images.paths[0], dataset.train.images.paths[1]):  # type: ignore[union-attr]
        path.unlink()
    assert quick.train(indices, torch.Generator().manual_seed(1)).shape == (4, 3, 16, 16)
    with pytest.raises(UserError, match="does not exist"):
        plain.plain(indices)


def test_copies_are_updated_when_a_file_changes(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = images(copied(dataset, tmp_path / "c"))
    made: list[Path] = []
    real = resized_copies._shrink
    monkeypatch.setattr(resized_copies, "_shrink", lambda path, side: (made.append(path), real(path, side))[1])
    again = images(copied(dataset, tmp_path / "c"))
    assert not made
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert isinstance(dataset.train.images, FileImages)
    picture(60, 40, seed=99).save(dataset.train.images.paths[0])
    assert not np.array_equal(images(copied(dataset, tmp_path / "c"))[0], first[0])
    assert len(made) == 4  # the training images; those of the test did not change
    copied(dataset, tmp_path / "c", side=18)
    assert len(made) == 10


def kill_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = resized_copies._shrink

    def shrink(path: Path, side: int) -> Image.Image:
        if path.name.startswith(str(number)):
            raise KeyboardInterrupt
        return real(path, side)

    monkeypatch.setattr(resized_copies, "_shrink", shrink)


@pytest.mark.parametrize("damage", ["none", "pixels cut", "index cut", "half an image more", "empty rows"])
def test_interrupted_copying_is_continued(
    damage: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = images(copied(dataset, tmp_path / "whole"))
    monkeypatch.setattr(resized_copies, "IMAGES_PER_SYNC", 1)
    with monkeypatch.context() as patch:
        kill_at(2, patch)
        with pytest.raises(KeyboardInterrupt):
            copied(dataset, tmp_path / "c")
    (folder,) = (tmp_path / "c").iterdir()
    assert (folder / "index").stat().st_size == 2 * resized_copies.ROW_BYTES
    if damage == "pixels cut":
        os.truncate(folder / "pixels", (folder / "pixels").stat().st_size - 5)
    elif damage == "index cut":
        os.truncate(folder / "index", 30)
    elif damage == "half an image more":
        with (folder / "pixels").open("ab") as file:
            file.write(b"x" * 100)
    elif damage == "empty rows":  # as a power cut may leave them
        with (folder / "index").open("ab") as file:
            file.write(bytes(2 * resized_copies.ROW_BYTES))
    copies = images(copied(dataset, tmp_path / "c"))
    assert all(np.array_equal(x, y) for x, y in zip(copies, expected, strict=True))


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
    "a height": lambda folder: change(folder / "index", resized_copies.ROW_BYTES + 8, b"\x7f"),
    "more rows": lambda folder: change(folder / "index", 4 * resized_copies.ROW_BYTES, b"x" * 13),
    "no pixels": lambda folder: (folder / "pixels").unlink(),
    "index emptied": lambda folder: os.truncate(folder / "index", 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_copies_are_replaced(damage: str, dataset: Dataset, tmp_path: Path) -> None:
    expected = images(copied(dataset, tmp_path / "c"))
    (folder,) = (path for path in (tmp_path / "c").iterdir() if len(np.fromfile(path / "index", dtype=np.int64)) == 16)
    content = {name: (folder / name).read_bytes() for name in ("pixels", "index")}
    DAMAGE[damage](folder)
    copies = images(copied(dataset, tmp_path / "c"))
    assert all(np.array_equal(x, y) for x, y in zip(copies, expected, strict=True))
    assert (folder / "pixels").read_bytes() == content["pixels"]  # for good
    assert (folder / "index").read_bytes()[: 4 * resized_copies.ROW_BYTES] == content["index"]


def test_damaged_copy_in_a_read_only_folder(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = copied(dataset, tmp_path / "c")
    expected = images(copies)
    for folder in (tmp_path / "c").iterdir():
        change(folder / "pixels", 0, bytes(50))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(resized_copies, "_overwrite", refuse)
    assert np.array_equal(images(copies)[0], expected[0])  # noticed when it is read, not only when the file is opened
    assert isinstance(dataset.train.images, FileImages)
    dataset.train.images.paths[0].unlink()
    with pytest.raises(UserError, match=r"0\.jpg"):
        images(copies)


def test_a_picture_replaced_by_one_of_the_same_size_and_time_gets_a_new_copy(dataset: Dataset, tmp_path: Path) -> None:
    assert isinstance(dataset.train.images, FileImages)
    path, versions = dataset.train.images.paths[0], []
    for seed in (0, 99):
        picture(60, 40, seed=seed).save(path)
        os.truncate(path, 10_000)  # zeros behind the end of a JPEG mean nothing
        os.utime(path, ns=(10**18, 10**18))
        versions.append(images(copied(dataset, tmp_path / "c"))[0])
    assert not np.array_equal(*versions)


def test_concurrent_copying(dataset: Dataset, tmp_path: Path) -> None:
    results: list[Dataset] = []
    threads = [threading.Thread(target=lambda: results.append(copied(dataset, tmp_path / "c"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        assert len(images(result)) == 4
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_complete_copies_are_only_read(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be read-only."""
    first = images(copied(dataset, tmp_path / "c"))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(resized_copies, "FileLock", refuse)
    monkeypatch.setattr(resized_copies, "_append", refuse)
    assert np.array_equal(images(copied(dataset, tmp_path / "c"))[0], first[0])
    with pytest.raises(UserError, match=r"cannot be stored in .*: Permission denied"):
        copied(dataset, tmp_path / "other")


def test_progress_and_free_space(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int]] = []
    with_resized_copies(dataset, SIDE, tmp_path / "c", 2, lambda *args: calls.append(args))
    assert calls == [
        *(("copying training images", done, 4) for done in (1, 2, 3, 4)),
        *(("copying test images", done, 2) for done in (1, 2)),
    ]
    free: Callable[[Path], os.stat_result] = lambda _: type("Usage", (), {"free": 10})()  # noqa: E731
    monkeypatch.setattr(shutil, "disk_usage", free)
    with pytest.raises(UserError, match=r"Copies of 4 images .* free some space"):
        copied(dataset, tmp_path / "other")


def test_a_run_with_copies(tmp_path: Path, cscct: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for part, count in (("train", 6), ("test", 2)):
        for label in range(4):
            folder = tmp_path / "photos" / part / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(count):
                picture(50, 40, seed=10 * label + number % 2).save(folder / f"{number}.jpg")
    command = ["run", "lucir+cscct", "folder", "--data-dir", str(tmp_path / "photos"), "--threads", "1", "--quiet"]
    sets = ("network.backbone=lucir-resnet", "network.depth=8", "data.transform.size=16", "train.epochs=1")
    command += [word for text in (*sets, "protocol.base=2") for word in ("--set", text)]
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}  # where Linux keeps caches
    done = cscct(*command, "--set", "data.resize_cache_px=18", "--out", str(tmp_path / "run"), **env)
    assert done.returncode == 0, done.stderr
    made = list((tmp_path / "cache").rglob("pixels"))
    assert sorted(file.stat().st_size for file in made) == sorted(18 * 22 * 3 * count for count in (24, 8))
    small = cscct(*command, "--set", "data.resize_cache_px=17", "--out", str(tmp_path / "other"), **env)
    assert small.returncode == 2
    assert "data.resize_cache_px is 17, but crops of 16 pixels need more: make it 18 or more" in small.stderr
    digits = cscct(
        "run", "lucir", "digits", "--set", "data.resize_cache_px=64", "--out", str(tmp_path / "digits"), **env
    )
    assert digits.returncode == 2
    assert "the images of digits are in memory" in digits.stderr
