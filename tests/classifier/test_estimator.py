"""The classifier that keeps learning."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from cscct import IncrementalClassifier, RunFailed, UserError
from cscct.classifier import evaluation
from cscct.classifier.state import DeferredFit
from cscct.features import PREDICTORS
from cscct.learn.evaluation import infer
from small_models import Colours, blobs, colours_model, pictures

EXCEPTIONS: dict[str, str] = {}


def test_check_estimator() -> None:
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
def test_order_and_grouping_of_images_do_not_matter(predictor: str, seed: int) -> None:
    x, y = blobs(4, 9, seed)
    queries = blobs(4, 20, seed)[0] + np.random.default_rng(seed).normal(size=(80, 12)).astype(np.float32)
    whole = IncrementalClassifier(None, method=predictor).learn(x, y)
    rng = np.random.default_rng(100 + seed)
    one_by_one = IncrementalClassifier(None, method=predictor)
    for label in rng.permutation(4):
        one_by_one.learn(x[y == label], y[y == label])
    in_parts = IncrementalClassifier(None, method=predictor)
    for part in np.array_split(rng.permutation(len(x)), 4):
        in_parts.partial_fit(x[part], y[part])
    for other in (one_by_one, in_parts):
        assert sorted(other.classes_) == sorted(whole.classes_)
        columns = [list(other.classes_).index(label) for label in whole.classes_]
        np.testing.assert_allclose(other.predict_proba(queries)[:, columns], whole.predict_proba(queries), atol=2e-4)


@pytest.mark.parametrize("predictor", sorted(PREDICTORS))
def test_forget_equals_never_learned(predictor: str) -> None:
    x, y = blobs(4, 9)
    model = IncrementalClassifier(None, method=predictor).learn(x, y).forget(2)
    never = IncrementalClassifier(None, method=predictor).learn(x[y != 2], y[y != 2])
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


def test_rename() -> None:
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
    with pytest.raises(UserError, match="Two classes would have the name 'green'"):
        model.rename({"blue": "green"})


def test_user_errors() -> None:
    model = colours_model()
    with pytest.raises(UserError, match=r"no class 'rad'.*mean 'red'"):
        model.forget("rad")
    with pytest.raises(UserError, match="all strings or all integers"):
        model.learn(pictures((1, 2, 3), 3), 7)
    with pytest.raises(UserError, match="3 images but 2 labels"):
        model.learn(pictures((1, 2, 3), 3), ["a", "b"])
    with pytest.raises(UserError, match="There is no method 'svm'"):
        IncrementalClassifier(None, method="svm").learn(*blobs(2, 3))
    with pytest.raises(UserError, match="did you mean 'lucir-resnet'"):
        IncrementalClassifier("lucir-resnt").learn(pictures((1, 2, 3), 3), "a")
    with pytest.raises(UserError, match="has no classes"):
        model.forget(["red", "blue"]).predict(pictures((1, 2, 3), 1))


def test_failure_does_not_change_the_model(tmp_path: Path) -> None:
    model = colours_model()
    before = model.predict_proba(pictures((90, 60, 90), 4))
    (tmp_path / "bad.jpg").write_bytes(b"")
    with pytest.raises(UserError, match="No image can be read"):
        model.learn([tmp_path / "bad.jpg"], "green")
    np.testing.assert_array_equal(model.predict_proba(pictures((90, 60, 90), 4)), before)


@pytest.mark.parametrize("what", ["reading images", "choosing exemplars", "evaluating"])
def test_interruption_does_not_change_the_model(what: str) -> None:
    model = colours_model()
    before, state = model.predict_proba(pictures((90, 60, 90), 4)), dict(vars(model))

    def interrupt(done: str, *numbers: int) -> None:
        if done == what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.learn(pictures((60, 200, 60), 8, 2), "green", progress=interrupt)
    np.testing.assert_array_equal(model.predict_proba(pictures((90, 60, 90), 4)), before)
    assert vars(model) == state


@pytest.mark.parametrize("predictor", sorted(PREDICTORS))
def test_images_that_were_learned_before_are_left_out(predictor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is learned twice changes nothing; an image that is known under another label keeps it."""
    red, green = pictures((200, 60, 60), 8), pictures((60, 200, 60), 6, 3)
    model = colours_model(method=predictor).learn(np.concatenate([green, red[2:3]]), "green")
    assert [(problem.kind, problem.path) for problem in model.report_.problems] == [("conflict", "image 7")]
    assert {label: stats.count for label, stats in model.statistics_.items()} == {"red": 8, "blue": 8, "green": 6}
    queries, accuracy = pictures((120, 120, 90), 5, 7), model.report_.after
    before = model.predict_proba(queries)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "BUDGET_OF_A_PHOTO", 0)  # as in a large model
        model.learn(red, "red")
    assert (model.report_.known, model.report_.images, model.report_.after) == ({"red": 8}, {}, accuracy)
    assert model.report_.notes == []  # in particular, none that the accuracy was not measured
    np.testing.assert_array_equal(model.predict_proba(queries), before)
    more = np.concatenate([red[:4], pictures((200, 60, 60), 3, 8)])
    assert model.learn(more, "red").report_.known == {"red": 4}
    assert model.report_.images == {"red": 3}
    assert model.statistics_["red"].count == 11


def test_near_duplicates_are_tested_together() -> None:
    """Bursts of almost equal images: without the groups, each would be recognised by its twins."""
    rng = np.random.default_rng(0)
    scenes = rng.integers(0, 255, (16, 20, 24, 3))  # nothing distinguishes the two classes
    bursts = (np.repeat(scenes, 4, axis=0) + rng.integers(-3, 3, (64, 20, 24, 3))).clip(0, 255).astype(np.uint8)
    model = IncrementalClassifier(Colours(), image_size=16).learn(bursts, ["a"] * 32 + ["b"] * 32)
    assert model.report_.near_duplicates == {"a": 24, "b": 24}
    correct = sum(pair[0] for pair in model.report_.after.values())
    assert 10 < correct < 54  # near chance; 64 if twins are known
    same = IncrementalClassifier(Colours(), image_size=16).learn(bursts[:4], "a").learn(bursts[32:], "b")
    assert same.report_.after["a"] == [0, 0]  # one scene: nothing is left to recognise it by


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
    assert model.report_.images == {"blue": 7, "red": 5}
    assert {problem.kind for problem in model.report_.problems} == {"unreadable", "conflict"}
    assert ("reading images", 13, 13) in seen
    assert (model.predict(tmp_path / "red" / "1.png") == "red").all()
    with pytest.raises(UserError, match=r"broken\.jpg"):
        model.predict([tmp_path / "red" / "1.png", tmp_path / "red" / "broken.jpg"])


def test_classes_with_few_images_are_reported() -> None:
    model = colours_model().learn(pictures((60, 200, 60), 3, 2), "green")
    assert [(problem.kind, problem.path, problem.text) for problem in model.report_.problems] == [
        ("few", "green", "only 3 images")
    ]


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


def test_report_of_changes() -> None:
    x, y = blobs(6, 12, width=30)
    model = IncrementalClassifier(None, method="ncm").learn(x[y < 4], y[y < 4])
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
    assert many.report_.after == {"red": [10, 10], "blue": [8, 8]}


def test_single_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions and unknown flags of a batch come from one forward pass, and agree with the separate methods."""
    model, images = colours_model(), pictures((200, 60, 60), 3)
    passes = []
    monkeypatch.setattr("cscct.classifier.reader.infer", lambda *args: passes.append(1) or infer(*args))
    predictions = list(model.predict_items(list(images), ["a", "b", "c"], top=1, unknown=0.1))
    assert len(passes) == 1
    assert [(p.image, p.best[0][0]) for p in predictions] == [("a", "red"), ("b", "red"), ("c", "red")]
    assert [p.unknown for p in predictions] == model.unknown(images, 0.1).tolist()
    assert [p.best[0][1] for p in predictions] == [best[0][1] for best in model.top(images, 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_float_image_as_wide_as_the_features_is_an_image(dtype: type) -> None:
    """A grey float frame whose width is the number of features is not mistaken for features."""
    model = colours_model()
    frame = np.random.default_rng(0).random((20, model.reader_.features)).astype(dtype)
    grey = np.rint(frame * 255).astype(np.uint8)
    assert model.features(frame).shape == (1, model.reader_.features)
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(grey))
    np.testing.assert_array_equal(model.predict(np.stack([frame, frame])), model.predict(np.stack([grey, grey])))


def test_single_images_and_empty_lists() -> None:
    model = colours_model()
    assert model.features(pictures((1, 2, 3), 2)).shape == (2, 48)
    assert model.predict(torch.from_numpy(pictures((200, 60, 60), 1)[0])).tolist() == ["red"]
    assert model.predict([]).shape == (0,)
    assert model.unknown(pictures((200, 60, 60), 3, 9), 0.1).tolist() == [False] * 3


def test_settings_can_be_changed_after_a_first_step_that_failed(tmp_path: Path) -> None:
    model = IncrementalClassifier(Colours(), image_size=16)
    with pytest.raises(UserError, match=r"No image can be read: .*missing\.png"):
        model.learn([tmp_path / "missing.png"], "red")
    model.set_params(image_size=32).learn(pictures((200, 60, 60), 5), "red")
    assert model.reader_.format.transform.size == 32


def test_values_that_are_not_finite_are_an_error() -> None:
    x, y = blobs(2, 4)
    model = IncrementalClassifier(None).learn(x, y)
    predictor = replace(model.predictor_, temperature=1e-320)
    model.restore_state(replace(model.state_, predictor=predictor))
    for predict in (model.predict, model.predict_proba, model.top):
        with pytest.raises(RunFailed, match="not finite"):
            predict(x)


def test_a_fit_that_is_not_needed_is_deferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x, y = blobs(4, 9)
    whole = IncrementalClassifier(None).learn(x, y)
    monkeypatch.setattr("cscct.classifier.step.worth_measuring", lambda *_, **__: False)
    fits = []
    compute = DeferredFit.compute
    monkeypatch.setattr(DeferredFit, "compute", lambda self: fits.append(len(self.classes)) or compute(self))
    model = IncrementalClassifier(None)
    for label in range(4):
        model.learn(x[y == label], y[y == label])
    model.rename({3: 7})
    assert fits == [1]  # the second step reports the accuracy before it
    np.testing.assert_array_equal(model.predict_proba(x), whole.predict_proba(x))
    assert model.predict(x[y == 3])[0] == 7
    np.testing.assert_array_equal(model.unknown_scores(x), whole.unknown_scores(x))
    model.save(tmp_path / "model")
    assert fits == [1, 4]
    loaded = IncrementalClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x), whole.predict_proba(x))


def test_measurements_take_time_proportional_to_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    predict = evaluation.left_out_predictions
    monkeypatch.setattr(
        evaluation,
        "left_out_predictions",
        lambda fit, classes, *rest: measured.append(classes) or predict(fit, classes, *rest),
    )
    monkeypatch.setattr(evaluation, "BUDGET_OF_A_VECTOR", 1e7)
    x, y = blobs(60, 3)
    model = IncrementalClassifier(None)
    for label in range(60):
        model.learn(x[y == label], y[y == label])
    costs = [3 * len(classes) for classes in measured]
    assert sum(costs) < 15 * len(x)  # measuring in each step would be 30 times the images
    assert "was not measured again" in " ".join(model.report_.notes)
    assert len(model.report_.after) == 60
