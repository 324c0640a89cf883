"""Labelled image files: class folders, divided folders and CSV files, and what is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from cscct.data.labelled import find_splits, scan_class_folders, scan_labelled, similar_names
from cscct.data.scanning import list_images
from cscct.errors import UserError
from pictures import draw
from small_models import colours_model, pictures


def picture() -> Image.Image:
    return Image.new("RGB", (30, 20), (200, 60, 60))


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
    for folder in (root, root / "red"):
        (folder / "__MACOSX").mkdir()
        picture().save(folder / "__MACOSX" / "a.png")
        (folder / "._a.png").write_bytes(b"metadata")
    files = scan_class_folders(root)
    assert list(zip([path.name for path in files.items], files.labels, strict=True)) == [
        ("linked.png", "blue"),
        ("a.png", "red"),
        ("b.png", "red"),
    ]
    assert sorted((problem.kind, Path(problem.path).name) for problem in files.problems) == [
        ("few", "empty"),
        ("skipped", ".hidden.png"),
        ("skipped", "__MACOSX"),
        ("skipped", "__MACOSX"),
        ("skipped", "loose.png"),
        ("skipped", "notes.txt"),
        ("unreadable", "cut.jpg"),
        ("unreadable", "nowhere.png"),
        ("unreadable", "pipe.png"),
    ]
    assert [path.name for path in list_images(root / "red")] == ["a.png", "cut.jpg", "b.png", "nowhere.png", "pipe.png"]


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A file may have one, for its name is not kept; a class may not."""
    (tmp_path / "red").mkdir()
    for i, image in enumerate(pictures((200, 60, 60), 3, 9)):
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
        scan_class_folders(tmp_path)
    (tmp_path / "red").mkdir()
    with pytest.raises(UserError, match="contain no readable images"):
        scan_class_folders(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        scan_class_folders(tmp_path / "missing")
    with pytest.raises(UserError, match="no images in"):
        list_images(tmp_path / "red")


def test_accents_that_are_taken_apart_make_no_other_class(tmp_path: Path) -> None:
    for name in ("caf\u00e9", "cafe\u0301"):
        (tmp_path / name).mkdir()
        picture().save(tmp_path / name / "a.png")
    assert set(scan_class_folders(tmp_path).labels) == {"caf\u00e9"}


def test_what_is_wrong_with_all_images_is_told(tmp_path: Path) -> None:
    (tmp_path / "red").mkdir()
    (tmp_path / "red" / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(UserError, match=r"contain no readable images, for example .*a\.pdf: not an image file"):
        scan_class_folders(tmp_path)
    picture().save(tmp_path / "loose.png")
    picture().save(tmp_path / "red" / "b.png")
    whole = (tmp_path / "red" / "b.png").read_bytes()
    (tmp_path / "red" / "b.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"No image can be read: .*b\.png"):
        colours_model().learn(tmp_path)


@pytest.mark.parametrize(
    ("folders", "split", "expected", "left_out"),
    [
        (
            ("train/cat", "train/dog", "val/cat", "test/dog", "notes/x"),
            "train",
            ["cat", "dog"],
            ["notes", "test", "val"],
        ),
        (("Train/cat", "validation/dog"), "test", ["dog"], ["Train"]),
        (("train/cat", "val/cat", "test/dog"), "test", ["dog"], ["train", "val"]),
        (("train/cat",), "test", ["cat"], []),
        (("train", "test", "car"), "train", ["car", "test", "train"], []),  # classes: a train has no folders
        (("train/2024", "car"), "train", ["car", "train"], []),  # a class with subfolders
    ],
)
def test_divided_folders(
    tmp_path: Path, folders: tuple[str, ...], split: str, expected: list[str], left_out: list[str]
) -> None:
    for folder in folders:
        draw(tmp_path / folder / "a.png")
    files = scan_class_folders(tmp_path, split)
    assert sorted(files.labels) == expected
    assert sorted(Path(problem.path).name for problem in files.problems) == left_out
    assert (find_splits(tmp_path) is None) == ("car" in folders)


def test_test_images_alone_are_rejected(tmp_path: Path) -> None:
    draw(tmp_path / "test" / "cat" / "a.png")
    with pytest.raises(UserError, match="no folder 'train'"):
        scan_class_folders(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "path,label\nx/a.png,cat\nx/b.png,dog\n"),
        ("a.csv", "\ufeffID;Class;File\r\n1;cat;x/a.png\r\n2;dog;x/b.png\r\n;;\r\n"),
        ("a.tsv", "x/a.png\tcat\nx/b.png\tdog"),
    ],
)
def test_csv_files(tmp_path: Path, name: str, text: str) -> None:
    for seed, letter in enumerate("ab"):
        draw(tmp_path / "x" / f"{letter}.png")
        Image.fromarray(pictures((60, 200, 60), 1, seed)[0]).save(tmp_path / "x" / f"{letter}.png")
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    files = scan_labelled(tmp_path / name)
    assert files.items == (tmp_path / "x" / "a.png", tmp_path / "x" / "b.png")
    assert files.labels == ("cat", "dog")
    assert not files.problems
    model = colours_model().learn(tmp_path / name)
    assert set(model.class_names) >= {"cat", "dog"}


def test_rows_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("not an image")
    listed = tmp_path / "a.csv"
    listed.write_text(f"path,label\n{tmp_path / 'a.png'},cat\na.png,\nmissing.png,cat\nnotes.txt,cat\n")
    files = scan_labelled(listed)
    assert files.labels == ("cat",)
    assert [problem.kind for problem in files.problems] == ["skipped", "unreadable", "skipped"]
    for text, message in [
        ("", "empty"),
        ("photo,kind,size\na.png,cat,1", "'path' and 'label'"),
        ("missing.png,cat", "no readable images"),
        (b"\xff\xfe\0", "UTF-8"),
    ]:
        listed.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(UserError, match=message):
            scan_labelled(listed)
    with pytest.raises(UserError, match="cannot be read"):
        scan_labelled(tmp_path / "none.csv")


def test_names_that_differ_only_in_case() -> None:
    assert [problem.path for problem in similar_names(["cat", "Dog", "Cat", "dog", 3], ["DOG", "bird"])] == [
        "Dog",
        "dog",
        "Cat",
    ]
    model = colours_model()
    model.learn(pictures((200, 200, 60), 6), "Red")
    assert [(problem.kind, problem.path) for problem in model.report_.problems] == [("names", "Red")]
