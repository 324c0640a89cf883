"""The Python API: runs, models, datasets in memory, listeners and custom backbones."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cscct
from conftest import run_quietly, without_timings
from cscct.errors import Interrupted, UserError
from cscct.features import DEFAULT_PREDICTORS
from cscct.nets import BACKBONES
from cscct.runs.folder import RunFolder

SMALL = {"train.epochs": 2, "data.train_per_class": 24, "data.classes": 6, "protocol.base": 2}
SMALL |= {"protocol.step": 2, "runtime.threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cscct.Run:
    return cscct.run("lucir+cscct", "digits", seed=1, settings=SMALL, out=tmp_path_factory.mktemp("api") / "run")


def digits_test(classes: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    """Test images of these classes, and their names."""
    from cscct.data.registry import LoadRequest, load

    dataset = load("digits", LoadRequest(None, False, 0.2, 1, print))
    names = [dataset.class_names[label] for label in dataset.test.labels]
    chosen = [i for i, name in enumerate(names) if name in classes]
    return dataset.test.images.pixels.numpy()[chosen], [names[i] for i in chosen]  # type: ignore[union-attr]


def test_run_gives_the_result_of_the_command(run: cscct.Run, tmp_path: Path) -> None:
    result = run_quietly(tmp_path / "run", "lucir+cscct", *(f"{key}={value}" for key, value in SMALL.items()))
    assert without_timings(run.result) == without_timings(result)
    assert without_timings(run.result) == without_timings(json.loads((run.path / "result.json").read_text()))
    assert run.summary == run.result["summary"]["classifier"]


def test_curve_has_a_point_for_each_task(run: cscct.Run) -> None:
    line = run.curve().get_lines()[0]
    assert list(line.get_xdata()) == [2, 4, 6]
    assert list(line.get_ydata()) == [task["accuracy"]["classifier"] for task in run.result["tasks"]]
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    assert run.curve(axes) is axes


@pytest.mark.parametrize("prediction", DEFAULT_PREDICTORS)
def test_copied_run_predicts_the_measured_confusion(run: cscct.Run, prediction: str, tmp_path: Path) -> None:
    """Without the data folder of the run."""
    copy = Path(shutil.copytree(run.path, tmp_path / "elsewhere"))
    model = cscct.load(copy, predictor=prediction)
    images, truth = digits_test(model.class_names)
    predicted = model.predict(images)
    confusion = np.zeros((6, 6), dtype=int)
    for true, guess in zip(truth, predicted, strict=True):
        confusion[model.class_names.index(true), model.class_names.index(guess)] += 1
    assert (confusion == RunFolder(copy).task(2)[f"confusion.{prediction}"].numpy()).all()
    probabilities = model.predict_proba(images)
    assert probabilities.shape == (len(images), 6)
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert (np.array(model.class_names)[probabilities.argmax(axis=1)] == predicted).mean() > 0.99  # ties aside
    assert model.features(images).shape == (len(images), 64)


def test_the_argument_prediction_is_deprecated(run: cscct.Run) -> None:
    with pytest.warns(FutureWarning, match="write predictor='nme'"):
        model = cscct.load(run.path, prediction="nme")
    images, _ = digits_test(model.class_names)
    assert (model.predict_proba(images) == cscct.load(run.path, predictor="nme").predict_proba(images)).all()


def test_model_of_enlarged_images(tmp_path: Path) -> None:
    """Images of 8 pixels, enlarged to 16."""
    run = cscct.run("lda", "digits", settings={"data.transform.size": 16, **SMALL}, out=tmp_path / "run")
    model = run.load()
    images, truth = digits_test(model.class_names)
    right = np.mean(model.predict(images) == np.array(truth))
    assert 100 * right == pytest.approx(run.result["tasks"][-1]["accuracy"]["lda"])
    expected = model.predict_proba(images[:3])
    pictures = [Image.fromarray(image[0]) for image in images[:3]]
    np.testing.assert_allclose(model.predict_proba(pictures), expected, atol=1e-6)
    pictures[0].save(tmp_path / "0.png")
    np.testing.assert_allclose(model.predict_proba(tmp_path / "0.png"), expected[:1], atol=1e-6)


def test_a_model_needs_a_finished_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no model"):
        cscct.load(tmp_path)
    shutil.copytree(Path(__file__).parent / "version02" / "icarl", tmp_path / "old")
    with pytest.raises(UserError, match="stored no predictor 'best'"):
        cscct.load(tmp_path / "old", predictor="best")
    (tmp_path / "old" / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(UserError, match="damaged"):
        cscct.load(tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="not finished"):
        cscct.load(tmp_path / "old")


def blobs(seed: int, count: int, labels: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """Images whose brightest corner determines the class."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 60, (count * len(labels), 1, 8, 8), dtype=np.uint8)
    for i in range(len(x)):
        place = i % len(labels)
        x[i, 0, 4 * (place // 2) : 4 * (place // 2) + 4, 4 * (place % 2) : 4 * (place % 2) + 4] += 150
    return x, [labels[i % len(labels)] for i in range(len(x))]


def test_run_on_arrays(tmp_path: Path) -> None:
    names = ["left", "right", "below", "aside"]
    (x, y), (x_test, y_test) = blobs(0, 20, names), blobs(1, 5, names)
    dataset = cscct.Dataset.from_arrays(x, y, x_test, y_test)
    assert dataset.class_names == tuple(sorted(names))
    settings = {"B": 2, "C": 1, "train.epochs": 8, "network.depth": 8, "memory.per_class": 4, "runtime.threads": 1}
    run = cscct.run("icarl+cscct", dataset, settings=settings, out=tmp_path / "run")
    assert len(run.result["tasks"]) == 3
    model = cscct.load(run.path)
    assert (model.predict(x_test) == np.array(y_test)).mean() > 0.5  # chance is 0.25
    again = cscct.run("icarl+cscct", dataset, settings=settings, out=tmp_path / "run")  # finished: only read
    assert again.result == run.result
    x[0, 0, 0, 0] ^= 1
    with pytest.raises(UserError, match="dataset has changed"):
        cscct.run(
            "icarl+cscct",
            cscct.Dataset.from_arrays(x, y, x_test, y_test),
            settings=settings,
            out=tmp_path / "run",
        )
    cscct.save_arrays(dataset, tmp_path / "data")
    stored = cscct.run("icarl+cscct", "arrays", settings=settings, data_dir=tmp_path / "data", out=tmp_path / "stored")
    assert stored.result["weights_sha256"] == run.result["weights_sha256"]


def test_arrays_by_index_and_from_torch() -> None:
    (x, y), (x_test, y_test) = blobs(0, 4, [0, 1, 2]), blobs(1, 2, [0, 1, 2])
    names = ["a", "b", "c"]
    by_index = cscct.Dataset.from_arrays(torch.from_numpy(x), torch.tensor(y), x_test, y_test, class_names=names)
    assert by_index.class_names == ("a", "b", "c")
    pairs = [[(Image.fromarray(a[0]), b) for a, b in zip(*part, strict=True)] for part in ((x, y), (x_test, y_test))]
    from_torch = cscct.Dataset.from_torch(*pairs, class_names=names)
    assert from_torch.fingerprint() == by_index.fingerprint()
    in_bytes = cscct.Dataset.from_arrays(x, [names[i].encode() for i in y], x_test, [names[i] for i in y_test])
    assert in_bytes.fingerprint() == by_index.fingerprint()
    with pytest.raises(TypeError):
        cscct.Dataset.from_torch([(pairs[0][0][0], 0.7)], pairs[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x / 255.0, y), "uint8"),
        (lambda x, y: (x.transpose(0, 2, 3, 1), y), "channels last"),
        (lambda x, y: (x, y[:-1]), "images but"),
        (lambda x, y: (x, [["a"]] * len(y)), "flat list"),
        (lambda x, y: (x, [0.5] * len(y)), "whole numbers or names"),
        (lambda x, y: (x, ["a"] * len(y)), "no training images"),
        (lambda x, y: (x, [True] * len(y)), "whole numbers or names"),
    ],
)
def test_invalid_arrays_are_user_errors(change: Any, message: str) -> None:
    x, y = blobs(0, 4, ["a", "b"])
    with pytest.raises(UserError, match=message):
        cscct.Dataset.from_arrays(*change(x, y), x, y)


class Stopper(cscct.Listener):
    """Counts events, and stops a run by raising an exception."""

    def __init__(self, after: int | None = None):
        self.steps, self.epochs, self.after, self.events = 0, 0, after, list[str]()

    def run_started(self, settings: Any, tasks: Any, images: int) -> None:
        self.events.append("started")

    def step(self, *_: Any) -> None:
        self.steps += 1
        if self.steps == self.after:
            raise Interrupted("enough")

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs += 1

    def task_finished(self, entry: Any) -> None:
        self.events.append(f"task {entry['task']}")

    def run_finished(self, result: Any, folder: Path) -> None:
        self.events.append("finished")


def test_resuming_a_finished_run_calls_found_finished(run: cscct.Run) -> None:
    folders: list[Path] = []

    class Finished:
        def found_finished(self, result: Any, folder: Path) -> None:
            folders.append(folder)

    assert cscct.resume(run.path, listeners=[Finished()]).result == run.result
    assert folders == [run.path]


def test_an_interrupted_run_is_resumed_and_listeners_get_all_events(run: cscct.Run, tmp_path: Path) -> None:
    listener = Stopper(after=5)
    with pytest.raises(Interrupted):
        cscct.run("lucir+cscct", "digits", settings=SMALL, out=tmp_path / "run", listeners=[listener])
    listener = Stopper()
    done = cscct.resume(tmp_path / "run", listeners=[listener])
    assert without_timings(done.result) == without_timings(run.result)
    assert listener.events[0] == "started"
    assert listener.events[-2:] == ["task 2", "finished"]
    assert listener.epochs > 0


def test_import_imports_no_large_package() -> None:
    code = "import sys, cscct; print(*sorted(m for m in ('torch', 'numpy', 'pydantic', 'yaml') if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
    assert {"run", "load", "resume", "Dataset", "Listener"} <= set(dir(cscct))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cscct.nothing  # noqa: B018


def test_compare_on_arrays_in_processes(tmp_path: Path) -> None:
    names = ["left", "right", "below", "aside"]
    dataset = cscct.Dataset.from_arrays(*blobs(0, 8, names), *blobs(1, 3, names))
    settings = {"B": 2, "C": 2, "train.epochs": 1, "network.depth": 8, "memory.per_class": 4, "runtime.threads": 1}
    table = cscct.compare(["replay", "icarl"], dataset, seeds=[1], settings=settings, jobs=2, out=tmp_path / "c")
    alone = cscct.run("icarl", dataset, settings=settings, out=tmp_path / "alone")
    stored = RunFolder(tmp_path / "c" / "icarl-seed1").result()
    assert stored["weights_sha256"] == alone.result["weights_sha256"]
    assert len(table.rows) == 2
    other = cscct.Dataset.from_arrays(*blobs(5, 8, names), *blobs(1, 3, names))
    with pytest.raises(UserError, match="dataset has changed"):  # though all runs are finished
        cscct.compare(["replay", "icarl"], other, seeds=[1], settings=settings, out=tmp_path / "c")


class Tiny(torch.nn.Module):
    """A backbone with one of the accepted return types."""

    def __init__(self, channels: int = 1, form: str = "maps"):
        super().__init__()
        self.form, self.features = form, 6
        self.one, self.two = torch.nn.Conv2d(channels, 4, 3, padding=1), torch.nn.Conv2d(4, 6, 3, stride=2)

    def forward(self, images: torch.Tensor) -> Any:
        first = torch.relu(self.one(images))
        second = self.two(first)
        features = second.mean(dim=(2, 3))
        forms = {"maps": (first, second), "map": second, "features": features, "pair": (features, [first, second])}
        return forms[self.form]


@pytest.mark.parametrize("form", ["maps", "map", "features", "pair"])
def test_custom_backbone(form: str, tmp_path: Path) -> None:
    settings = {**SMALL, "train.epochs": 1, "finetune.epochs": 1}
    module = Tiny(form=form)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    run = cscct.run("podnet+cscct", "digits", settings=settings, backbone=module, out=tmp_path / "run")
    assert all(torch.equal(tensor, module.state_dict()[name]) for name, tensor in before.items())  # a copy was trained
    model = cscct.load(run.path, backbone=Tiny(form=form))  # whose weights are others: those of the folder count
    images, truth = digits_test(model.class_names)
    assert model.features(images[:2]).shape == (2, 6)
    predicted = [model.class_names.index(name) for name in model.predict(images)]
    true = [model.class_names.index(name) for name in truth]
    confusion = np.zeros((6, 6), dtype=int)
    np.add.at(confusion, (true, predicted), 1)
    assert (confusion == RunFolder(run.path).task(2)["confusion.classifier"].numpy()).all()


class Shared(torch.nn.Module):
    """A backbone with batch norm, whose batch counter is a scalar, and with shared weights."""

    features = 6

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = torch.nn.Conv2d(1, 6, 3), torch.nn.BatchNorm2d(6)
        self.one = torch.nn.Conv2d(6, 6, 3, padding=1)
        self.two = torch.nn.Conv2d(6, 6, 3, padding=1)
        self.two.weight = self.one.weight

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(self.norm(self.stem(images)))))


def test_a_backbone_with_batch_norm_and_shared_weights(tmp_path: Path) -> None:
    settings = {**SMALL, "train.epochs": 1, "checkpoint.minutes": 0}
    run = cscct.run("lucir", "digits", settings=settings, backbone=Shared(), out=tmp_path / "run")
    model = cscct.load(run.path, backbone=Shared())
    images, truth = digits_test(model.class_names)
    assert (model.predict(images) == truth).mean() * 100 == pytest.approx(run.summary["last_accuracy"])


def test_a_backbone_function_is_seeded_and_has_a_unique_name(tmp_path: Path) -> None:
    first, again = (
        cscct.run("replay", "digits", settings=SMALL, backbone=Tiny, out=tmp_path / name) for name in ("one", "two")
    )
    assert first.result["weights_sha256"] == again.result["weights_sha256"]

    def wider(channels: int) -> torch.nn.Module:
        module = Tiny(channels)
        module.one = torch.nn.Conv2d(channels, 4, 5, padding=2)
        return module

    wider.__name__ = "Tiny"
    with pytest.raises(UserError, match=r"another run: network\.backbone was custom-Tiny-"):
        cscct.run("replay", "digits", settings=SMALL, backbone=wider, out=tmp_path / "one")


def test_a_run_with_custom_data_and_backbone_is_resumed(tmp_path: Path) -> None:
    names = ["left", "right", "below", "aside"]
    dataset = cscct.Dataset.from_arrays(*blobs(0, 8, names), *blobs(1, 3, names))
    settings = {"B": 2, "C": 1, "train.epochs": 2, "memory.per_class": 4, "runtime.threads": 1}
    whole = cscct.run("lucir", dataset, settings=settings, backbone=Tiny, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        cscct.run(
            "lucir", dataset, settings=settings, backbone=Tiny, out=tmp_path / "run", listeners=[Stopper(after=3)]
        )
    done = cscct.resume(tmp_path / "run", dataset=dataset, backbone=Tiny)
    assert done.result["weights_sha256"] == whole.result["weights_sha256"]


def test_invalid_arguments_are_user_errors(tmp_path: Path) -> None:
    calls: list[tuple[Any, str]] = [
        (lambda: cscct.run("lucir", "digits", settings={"seed": 7}), "use the argument seed"),
        (lambda: cscct.run("lucir", (1, 2)), "dataset must be a name or a cscct.Dataset"),  # type: ignore[arg-type]
        (lambda: cscct.run("lucir", "digits", listeners=[3], out=tmp_path / "r"), "no method of a listener"),
        (lambda: cscct.resume(tmp_path), "is not a run folder"),
        (lambda: cscct.load(tmp_path / "r", version=1), "contains no model"),
    ]
    for call, message in calls:
        with pytest.raises(UserError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
    assert cscct.run("replay", "digits", seed=np.int64(3), settings=SMALL, out=tmp_path / "run").result["seed"] == 3


def test_invalid_backbones_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs an integer attribute `features`"):
        cscct.run("lucir", "digits", settings=SMALL, backbone=torch.nn.Flatten(), out=tmp_path / "a")
    wrong = Tiny()
    wrong.features = 7
    with pytest.raises(UserError, match=r"of which the last has 7 channels; it returned"):
        cscct.run("lucir", "digits", settings=SMALL, backbone=wrong, out=tmp_path / "b")
    cscct.run("lucir", "digits", settings=SMALL, backbone=Tiny(), out=tmp_path / "c")
    for name in [name for name in BACKBONES if name.startswith("custom-Tiny")]:
        del BACKBONES[name]
    with pytest.raises(UserError, match=r"is unknown: load the plugin .* or pass your own module"):
        cscct.load(tmp_path / "c")
