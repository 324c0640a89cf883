"""Photos that look mislabelled, and changes of single photos; tests of models on folders."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cscct
from cscct import IncrementalClassifier, UserError
from cscct.classifier.describe import describe
from cscct.classifier.folder import forget_classes, learn_images, rename_class
from cscct.classifier.photo_changes import (
    keep_photos,
    merge_classes,
    move_photos,
    remove_photos,
    review_images,
    review_photos,
)
from cscct.classifier.report import percent
from cscct.classifier.review import photo_image
from cscct.classifier.testing import run_test, wilson
from cscct.reporting.model_pages import contact_sheet, write_test
from small_models import Colours, pictures

COLOURS = {"red": (200, 60, 60), "blue": (60, 60, 200)}


def write_folder(folder: Path, count: int = 8, seed: int = 0, wrong: int = 0) -> Path:
    """Class folders; the first `wrong` images of `red` are blue."""
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i, image in enumerate(pictures(colour, count, seed + len(name))):
            shown = pictures(COLOURS["blue"], 1, 99 + seed + i)[0] if name == "red" and i < wrong else image
            Image.fromarray(shown).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A model with a blue photo among the red ones."""
    images = write_folder(tmp_path / "images", wrong=1)
    model = IncrementalClassifier(Colours(), image_size=16).learn(images)
    model.save(tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models with a custom backbone are loaded without passing it."""
    from cscct.classifier.versions import StoredVersions

    load = StoredVersions.load
    monkeypatch.setattr(StoredVersions, "load", lambda self, *a, **k: load(self, *a, **{**k, "backbone": Colours()}))


def test_a_wrong_label_is_listed_and_nothing_changes(model_dir: Path) -> None:
    (photo, image), *others = review_images(model_dir)
    assert (photo.label, photo.predicted) == ("red", "blue")
    assert photo.name.endswith("red/0.png")
    assert photo.probability < 0.3 < photo.predicted_probability
    assert not others
    assert image is not None
    assert image.startswith(b"\xff\xd8")
    page = contact_sheet("<m>", [(photo, image), (photo, None)])
    assert page.count("data:image/jpeg;base64,") == 1
    assert "&lt;m&gt;" in page
    assert "http" not in page
    assert describe(model_dir)["classes"] == {"blue": 8, "red": 8}


def test_move_remove_and_keep(model_dir: Path, tmp_path: Path) -> None:
    id = review_photos(model_dir)[0].id
    assert move_photos(model_dir, [id[:8]], "blue") == 2
    assert describe(model_dir)["classes"] == {"blue": 9, "red": 7}
    assert review_photos(model_dir) == []
    moved = cscct.load(model_dir)
    right = IncrementalClassifier(Colours(), image_size=16)
    x = np.concatenate(
        [pictures(COLOURS["blue"], 8, 4), pictures(COLOURS["blue"], 1, 99), pictures(COLOURS["red"], 8, 3)[1:]]
    )
    right.learn(x, ["blue"] * 9 + ["red"] * 7)
    queries = pictures((120, 60, 120), 5, 3)
    np.testing.assert_allclose(moved.predict_proba(queries), right.predict_proba(queries), atol=1e-6)
    learn_again = learn_images(model_dir, tmp_path / "images")  # the file is still in the folder of red
    assert not learn_again.changed
    assert [problem.kind for problem in learn_again.report.problems] == ["conflict"]
    remove_photos(model_dir, [id])
    assert describe(model_dir)["classes"] == {"blue": 8, "red": 7}
    with pytest.raises(UserError, match="no photo"):
        remove_photos(model_dir, [id])
    assert learn_images(model_dir, tmp_path / "images").report.images == {"red": 1}
    before = describe(model_dir)["accuracy"]
    keep_photos(model_dir, [review_photos(model_dir)[0].id])
    assert review_photos(model_dir) == []
    assert describe(model_dir)["accuracy"] == before == {"blue": [8, 8], "red": [7, 8]}


def test_photos_that_cannot_be_changed(model_dir: Path) -> None:
    id = review_photos(model_dir)[0].id
    with pytest.raises(UserError, match="in the class red already"):
        move_photos(model_dir, [id], "red")
    ids = [photo.id for photo in cscct.load(model_dir).state_.photos["red"].photos]
    with pytest.raises(UserError, match="would be left"):
        remove_photos(model_dir, ids)
    assert describe(model_dir)["versions"][-1]["number"] == 1


def test_merged_classes_are_learned_together(model_dir: Path, tmp_path: Path) -> None:
    merge_classes(model_dir, ["red"], "blue")
    merged, both = cscct.load(model_dir), IncrementalClassifier(Colours(), image_size=16)
    both.learn(
        [*sorted((tmp_path / "images" / "blue").iterdir()), *sorted((tmp_path / "images" / "red").iterdir())], "blue"
    )
    assert merged.statistics_["blue"].count == 16
    np.testing.assert_array_equal(merged.statistics_["blue"].rows, both.statistics_["blue"].rows)
    members = merged.state_.photos["blue"]
    assert [Path(photo.name).parent.name for photo in members.photos] == ["blue"] * 8 + ["red"] * 8
    names = {photo.id: Path(photo.name).parent.name for photo in members.photos}
    assert [names[id] for id in members.exemplars[:4]] == ["blue", "red", "blue", "red"]
    with pytest.raises(UserError, match="into itself"):
        merge_classes(model_dir, ["blue"], "blue")
    with pytest.raises(UserError, match="no class 'red'"):
        merge_classes(model_dir, ["red"], "blue")


def test_a_changed_file_is_not_shown(model_dir: Path, tmp_path: Path) -> None:
    """The image of a photo comes from its file only while that has the same pixels."""
    state = cscct.load(model_dir).state_
    photo = state.photos["red"].photos[0]
    large = photo_image(state, photo.id, photo.name, 500)
    assert large is not None
    Image.new("RGB", (300, 300)).save(photo.name)
    stored = photo_image(state, photo.id, photo.name, 500)
    assert stored is not None
    assert Image.open(io.BytesIO(stored)).size != (300, 300)


def test_changes_keep_features_that_the_predictor_needs(tmp_path: Path) -> None:
    """Classes with more photos than feature dimensions."""
    model = IncrementalClassifier(Colours(), image_size=16, method="ranpac")
    images = np.concatenate([pictures(COLOURS["red"], 52, 1), pictures(COLOURS["blue"], 52, 2)])
    model.learn(images, ["red"] * 52 + ["blue"] * 52).save(tmp_path / "m")
    id = model.state_.photos["red"].photos[0].id
    move_photos(tmp_path / "m", [id], "blue")
    remove_photos(tmp_path / "m", [id])
    samples = [stats.samples for stats in cscct.load(tmp_path / "m").statistics_.values()]
    assert [len(rows) for rows in samples if rows is not None] == [52, 51]


def test_accuracies_survive_forget_and_rename(model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "green" / "green").mkdir(parents=True)
    Image.fromarray(pictures((60, 200, 60), 1)[0]).save(tmp_path / "green" / "green" / "0.png")
    learn_images(model_dir, tmp_path / "green")
    assert describe(model_dir)["accuracy"]["green"] == [0, 0]  # a single photo is not measured
    rename_class(model_dir, "red", "rot")
    forget_classes(model_dir, ["green"])
    assert describe(model_dir)["accuracy"] == {"blue": [8, 8], "rot": [7, 8]}
    assert [photo.label for photo in review_photos(model_dir)] == ["rot"]
    forget_classes(model_dir, ["rot"], purge_history=True)
    assert describe(model_dir)["accuracy"] == {"blue": [0, 0]}
    assert cscct.load(model_dir).state_.thumbnails == {}


def test_no_evaluation_keeps_the_stored_figures(model_dir: Path, tmp_path: Path) -> None:
    report = learn_images(model_dir, write_folder(tmp_path / "more", 3, 50), evaluate=False).report
    assert report.before == report.after == {"blue": [8, 8], "red": [7, 8]}
    assert describe(model_dir)["measured_images"] == 16


def test_test_of_a_folder(model_dir: Path, tmp_path: Path) -> None:
    images = write_folder(tmp_path / "test", 5, 70, wrong=2)
    (images / "blue" / "broken.png").write_bytes(b"\x89PNG")
    (images / "violet").mkdir()
    Image.fromarray(pictures((120, 0, 120), 1)[0]).save(images / "violet" / "0.png")
    (images / "blue" / "copy.png").write_bytes((tmp_path / "images" / "blue" / "0.png").read_bytes())
    result = run_test(model_dir, images)
    assert (result.correct, result.images, result.classes) == (9, 11, {"blue": [6, 6], "red": [3, 5]})
    assert result.confusion == {"blue": {"blue": 6}, "red": {"red": 3, "blue": 2}}
    assert [Path(photo.image).name for photo in result.misclassified] in (["0.png", "1.png"], ["1.png", "0.png"])
    assert (result.learned, result.unknown) == (1, {"violet": 1})
    assert [problem.kind for problem in result.problems] == ["unreadable"]
    assert json.loads(json.dumps(result.as_dict()))["accuracy"] == 9 / 11
    page = write_test(result, tmp_path / "out").read_text()
    assert "81.8 %" in page
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == {
        "confusion.png",
        "confusion.svg",
        "confusion.csv",
    }
    other = IncrementalClassifier(Colours(), image_size=16).learn(pictures((1, 2, 3), 3), "other")
    with pytest.raises(UserError, match="none of the classes"):
        run_test(model_dir, images, model=other)


def test_percentages_and_intervals() -> None:
    assert [percent(*pair) for pair in ((9999, 10000), (5, 5), (0, 0), (1, 3))] == [
        "99.9 %",
        "100.0 %",
        "not measured",
        "33.3 %",
    ]
    low, high = wilson(19, 20)
    assert (round(low, 3), round(high, 3)) == (0.764, 0.991)
    assert (wilson(5, 5)[1], wilson(0, 5)[0]) == (1.0, 0.0)


@pytest.mark.skipif("CSCCT_DATA" not in os.environ, reason="needs the photos and birds of $CSCCT_DATA")
@pytest.mark.parametrize(("dataset", "planted", "wanted"), [("photos", 55, 50), ("birds", 60, 48)])
def test_planted_errors_are_listed(dataset: str, planted: int, wanted: int) -> None:
    """5 % of the labels are wrong; most of the photos that look most suspicious have one."""
    paths = sorted((Path(os.environ["CSCCT_DATA"]) / dataset / "train").glob("*/*.jpg"))
    labels = [path.parent.name for path in paths]
    names, rng = sorted(set(labels)), np.random.default_rng(0)
    chosen = rng.choice(len(paths), planted, replace=False)
    for index in chosen:
        labels[index] = str(rng.choice([name for name in names if name != labels[index]]))
    review = IncrementalClassifier(memory_mb=0).learn(paths, labels, quiet=True).review()
    wrong = {str(paths[index]) for index in chosen}
    assert sum(photo.name in wrong for photo in review if photo.kind == "mislabelled") >= wanted
    assert sum(photo.name in wrong for photo in review[:planted]) >= 0.8 * planted
