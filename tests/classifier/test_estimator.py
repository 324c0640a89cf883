"""The classifier that keeps learning."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import cscct
from cscct import IncrementalClassifier, UserError
from cscct.predictors import PREDICTORS
from small_models import Colours, blobs, colours_model, pictures


def test_the_package_exports_it() -> None:
    assert cscct.IncrementalClassifier is IncrementalClassifier


EXCEPTIONS: dict[str, str] = {}


def test_scikit_learn_finds_nothing_wrong() -> None:
    check_estimator(IncrementalClassifier(backbone=None), expected_failed_checks=EXCEPTIONS)


def test_parameters_are_stored_and_cloned() -> None:
    model = IncrementalClassifier(Colours(), predictor="ncm", memory_mb=3.0)
    twin = clone(model)
    assert twin.predictor == "ncm"
    assert twin.memory_mb == 3.0
    assert isinstance(twin.set_params(memory_per_class=4).backbone, Colours)
    fitted = colours_model()
    assert (copy.deepcopy(fitted).predict(pictures((200, 60, 60), 3)) == "red").all()


@pytest.mark.parametrize("predictor", sorted(PREDICTORS))
@pytest.mark.parametrize("seed", range(2))
def test_the_order_and_grouping_of_images_does_not_matter(predictor: str, seed: int) -> None:
    x, y = blobs(4, 9, seed)
    queries = blobs(4, 20, seed)[0] + np.random.default_rng(seed).normal(size=(80, 12)).astype(np.float32)
    whole = IncrementalClassifier(None, predictor=predictor).learn(x, y)
    rng = np.random.default_rng(100 + seed)
    one_by_one = IncrementalClassifier(None, predictor=predictor)
    for label in rng.permutation(4):
        one_by_one.learn(x[y == label], y[y == label])
    in_parts = IncrementalClassifier(None, predictor=predictor)
    for part in np.array_split(rng.permutation(len(x)), 4):
        in_parts.partial_fit(x[part], y[part])
    for other in (one_by_one, in_parts):
        assert sorted(other.classes_) == sorted(whole.classes_)
        columns = [list(other.classes_).index(label) for label in whole.classes_]
        np.testing.assert_allclose(other.predict_proba(queries)[:, columns], whole.predict_proba(queries), atol=2e-4)


@pytest.mark.parametrize("predictor", sorted(PREDICTORS))
def test_a_forgotten_class_leaves_nothing(predictor: str) -> None:
    x, y = blobs(4, 9)
    model = IncrementalClassifier(None, predictor=predictor).learn(x, y).forget(2)
    never = IncrementalClassifier(None, predictor=predictor).learn(x[y != 2], y[y != 2])
    np.testing.assert_array_equal(model.predict_proba(x), never.predict_proba(x))
    assert model.report_.forgotten == ["2"]
    assert list(model.classes_) == [0, 1, 3]


def test_classes_are_in_the_order_of_learning() -> None:
    x, y = blobs(4, 6)
    model = IncrementalClassifier(None)
    for labels in ([3, 1], [2], [0]):
        chosen = np.isin(y, labels)
        model.learn(x[chosen], y[chosen])
    assert list(model.classes_) == [1, 3, 2, 0]
    assert model.class_names == ("1", "3", "2", "0")
    assert model.top(x[y == 2], k=2)[0][0][0] == 2
    assert model.score(x, y) > 0.6


def test_rename_keeps_everything_else() -> None:
    model = colours_model()
    before, exemplars = model.predict_proba(pictures((90, 60, 90), 4)), model.exemplars_
    model.rename({"red": "blue", "blue": "green"})
    np.testing.assert_array_equal(model.predict_proba(pictures((90, 60, 90), 4)), before)
    assert list(model.classes_) == ["blue", "green"]
    assert model.exemplars_ == {"blue": exemplars["red"], "green": exemplars["blue"]}
    assert (model.report_.new, list(model.report_.before), set(model.report_.after)) == (
        ["green"],
        ["blue"],
        {"blue", "green"},
    )
    with pytest.raises(UserError, match="Two classes would be called 'green'"):
        model.rename({"blue": "green"})


def test_mistakes_are_told_in_sentences() -> None:
    model = colours_model()
    with pytest.raises(UserError, match=r"no class 'rad'.*mean 'red'"):
        model.forget("rad")
    with pytest.raises(UserError, match="all texts or all whole numbers"):
        model.learn(pictures((1, 2, 3), 3), 7)
    with pytest.raises(UserError, match="3 images and 2 labels"):
        model.learn(pictures((1, 2, 3), 3), ["a", "b"])
    with pytest.raises(UserError, match="predictor must be"):
        IncrementalClassifier(None, predictor="svm").learn(*blobs(2, 3))
    with pytest.raises(UserError, match="did you mean 'lucir-resnet'"):
        IncrementalClassifier("lucir-resnt").learn(pictures((1, 2, 3), 3), "a")
    with pytest.raises(UserError, match="no classes any more"):
        model.forget(["red", "blue"]).predict(pictures((1, 2, 3), 1))


def test_a_failure_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = colours_model()
    before = model.predict_proba(pictures((90, 60, 90), 4))
    (tmp_path / "bad.jpg").write_bytes(b"")
    with pytest.raises(UserError, match="No image can be read"):
        model.learn([tmp_path / "bad.jpg"], "green")
    np.testing.assert_array_equal(model.predict_proba(pictures((90, 60, 90), 4)), before)


@pytest.mark.parametrize("what", ["reading images", "choosing exemplars", "measuring"])
def test_an_interruption_leaves_the_model_as_it_was(what: str) -> None:
    model = colours_model()
    before, state = model.predict_proba(pictures((90, 60, 90), 4)), dict(vars(model))

    def interrupt(done: str, *numbers: int) -> None:
        if done == what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.learn(pictures((60, 200, 60), 8, 2), "green", progress=interrupt)
    np.testing.assert_array_equal(model.predict_proba(pictures((90, 60, 90), 4)), before)
    assert vars(model) == state


def test_pictures_that_were_learned_before_are_told() -> None:
    """A folder that is learned twice by mistake, or a picture that was learned under another label."""
    red, green = pictures((200, 60, 60), 8), pictures((60, 200, 60), 6, 3)
    model = colours_model().learn(np.concatenate([green, red[2:3]]), "green")  # 8 of red, 8 of blue before
    assert [(one.kind, one.path, one.text) for one in model.report_.problems] == [
        ("duplicate", "green", "image 7 was learned before in the class red")
    ]
    model.learn(red, "red")
    problems = {(one.path, one.text) for one in model.report_.problems}
    assert ("red", "8 of its images were learned before, the first of them image 1") in problems
    assert ("red", "image 3 was learned before in the class green") in problems
    assert not model.learn(pictures((120, 120, 120), 6, 9), "grey").report_.problems


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    for name, colour in {"red": (200, 60, 60), "blue": (60, 60, 200)}.items():
        (tmp_path / name).mkdir()
        for i, image in enumerate(pictures(colour, 6, seed=len(name))):
            Image.fromarray(image).save(tmp_path / name / f"{i}.png")
    (tmp_path / "red" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "blue" / "again.png").write_bytes((tmp_path / "red" / "0.png").read_bytes())
    seen: list[tuple[str, int, int]] = []
    model = IncrementalClassifier(Colours(), image_size=16)
    model.learn(tmp_path, progress=lambda *what: seen.append(what))
    assert list(model.classes_) == ["blue", "red"]
    assert model.report_.images == {"blue": 7, "red": 6}
    assert {problem.kind for problem in model.report_.problems} == {"unreadable", "duplicate"}
    assert ("reading images", 13, 13) in seen
    assert (model.predict(tmp_path / "red" / "1.png") == "red").all()
    with pytest.raises(UserError, match=r"broken\.jpg"):
        model.predict([tmp_path / "red" / "1.png", tmp_path / "red" / "broken.jpg"])


def test_classes_with_few_images_are_told() -> None:
    model = colours_model().learn(pictures((60, 200, 60), 3, 2), "green")
    assert [(one.kind, one.path, one.text) for one in model.report_.problems] == [("few", "green", "only 3 images")]


def test_exemplars_stay_within_the_budget() -> None:
    model = colours_model(memory_per_class=6)
    assert {label: len(images) for label, images in model.exemplars_.items()} == {"red": 6, "blue": 6}
    model.learn(pictures((60, 200, 60), 30, 2), "green").learn(pictures((200, 60, 60), 30, 3), "red")
    assert {len(images) for images in model.exemplars_.values()} == {6}
    assert colours_model(memory_mb=0).exemplars_ == {}
    size = sum(len(image) for images in model.exemplars_.values() for image in images)
    small = colours_model(memory_mb=size / 3 / 1e6, memory_per_class=8)
    counts = {len(images) for images in small.exemplars_.values()}
    assert counts < {1, 2, 3, 4, 5}
    assert len(counts) == 1


def test_the_report_tells_what_changed() -> None:
    x, y = blobs(6, 12, width=30)
    model = IncrementalClassifier(None, predictor="ncm").learn(x[y < 4], y[y < 4])
    first = model.report_
    assert first.before == {}
    model.learn(x[y >= 3], y[y >= 3])
    report = model.report_
    assert (report.new, report.extended, report.images) == (["4", "5"], ["3"], {"3": 12, "4": 12, "5": 12})
    assert report.before == first.after
    assert all(count == (24 if label == "3" else 12) for label, (_, count) in report.after.items())
    assert len(report.similar["4"]) == 3
    assert all(true != predicted for true, predicted, _ in report.confusions)


def test_classes_with_more_images_than_dimensions_are_tested_on_their_exemplars() -> None:
    many = IncrementalClassifier(Colours(), image_size=16, memory_per_class=10, predictor="ncm")
    many.learn(pictures((200, 60, 60), 60), "red").learn(pictures((60, 60, 200), 8, 1), "blue")
    assert many.statistics_["red"].samples is None
    assert (many.report_.before, many.report_.after) == ({"red": [10, 10]}, {"red": [10, 10], "blue": [8, 8]})


def test_what_features_gave_is_asked_again_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = colours_model(), pictures((200, 60, 60), 3)
    features, probabilities, unknown = model.features(images), model.predict_proba(images), model.unknown(images)
    monkeypatch.setattr(model, "_extractor", None)
    np.testing.assert_array_equal(model.predict_proba(features), probabilities)
    np.testing.assert_array_equal(model.unknown(features), unknown)
    assert [best[0][0] for best in model.top(features)] == ["red"] * 3


def test_features_that_are_given_as_tensors_on_one_image() -> None:
    model = colours_model()
    assert model.features(pictures((1, 2, 3), 2)).shape == (2, 48)
    assert model.predict(torch.from_numpy(pictures((200, 60, 60), 1)[0])).tolist() == ["red"]
    assert model.predict([]).shape == (0,)
    assert model.unknown(pictures((200, 60, 60), 3, 9)).tolist() == [False] * 3


def test_a_grey_image_as_wide_as_the_features_is_an_image() -> None:
    model = colours_model()
    grey = pictures((120, 120, 120), 1)[0, :, :, 0].repeat(2, axis=1)
    assert grey.shape == (20, model.features(grey).shape[1])
    assert model.predict(grey).shape == (1,)


def test_settings_can_be_changed_after_a_first_step_that_failed(tmp_path: Path) -> None:
    model = IncrementalClassifier(Colours(), image_size=16)
    with pytest.raises(UserError, match=r"No image can be read: .*missing\.png"):
        model.learn([tmp_path / "missing.png"], "red")
    model.set_params(image_size=32).learn(pictures((200, 60, 60), 5), "red")
    assert model._extractor.transform.size == 32
