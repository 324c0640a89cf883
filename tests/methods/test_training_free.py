"""Methods without training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cscct
from conftest import THREADS, Silent, learner_for, run_quietly, settings_for, without_timings
from cscct.analysis.settings import protocol
from cscct.errors import Interrupted, UserError
from cscct.features import DEFAULT_PREDICTORS, ClassStatistics, fit_predictors
from cscct.reporting import write_report
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.storage import read_tensors
from cscct.studies.datasets import load_dataset
from synthetic import groups_in

FEW = ("data.train_per_class=70", "data.test_per_class=10")
HEADLINE = {"ncm": "nme", "lda": "lda", "ridge": "ridge", "ranpac": "ranpac", "fecam": "fecam"}
OPTIONS = {"ranpac": ("predict.options.ranpac.dimension=100",)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of lda."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_quietly(folder, "lda", *FEW)
    return folder


@pytest.mark.parametrize("method", HEADLINE)
def test_accuracy_above_chance(method: str, tmp_path: Path) -> None:
    listener = Silent()
    result = run_quietly(tmp_path / "run", method, *FEW, *OPTIONS.get(method, ()), listener=listener)
    assert (result["status"], result["headline"]) == ("finished", HEADLINE[method])
    assert set(result["summary"]) == {*DEFAULT_PREDICTORS, HEADLINE[method]}
    assert result["summary"][HEADLINE[method]]["last_accuracy"] > 30  # chance: 10
    assert listener.epochs == []
    assert result["matrix"]["classifier"] == result["matrix"]["nme"]  # its rows are the class means


def test_tasks_equal_all_classes_at_once() -> None:
    """Digits have 70 images a class here and 64 features, so the statistics are compressed."""
    learner = learner_for("lda", *FEW)
    before = {name: tensor.clone() for name, tensor in learner.network.backbone.state_dict().items()}
    for task in learner.stream.tasks:
        known = dict(learner.statistics)
        learner.learn(task, Silent())
        assert all(learner.statistics[label] is stats for label, stats in known.items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.network.backbone.state_dict().items())
    assert all(stats.count == 70 and stats.samples is None for stats in learner.statistics.values())
    actual = []
    for members in learner.stream.train:
        features = learner.evaluator.features(learner.stream.train_view, torch.tensor(members))
        actual.append(ClassStatistics.of(features))
    for name, expected in fit_predictors(learner.config.predictors, actual, learner.config.seed).items():
        weight, predictor = expected.tensors()["weight"], learner.linear[name].tensors()["weight"]
        torch.testing.assert_close(predictor, weight, rtol=1e-3, atol=1e-3 * float(weight.abs().max()))


@pytest.mark.parametrize("method", ["lda", "ranpac", "fecam"])
def test_stopped_after_every_task(method: str, whole: Path, tmp_path: Path) -> None:
    sets = (*FEW, *OPTIONS.get(method, ()))
    if method != "lda":
        whole = tmp_path / "whole"
        run_quietly(whole, method, *sets)
    settings = settings_for(method, "digits", f"runtime.threads={THREADS}", *sets)
    dataset = load_dataset(settings, None, print)
    folder = RunFolder(tmp_path / "run")
    for _ in range(3):
        with pytest.raises(Interrupted, match="cscct resume"):
            execute(settings, dataset, folder, stop=lambda: True)
    result = execute(settings, dataset, folder, stop=lambda: True)
    assert without_timings(result) == without_timings(RunFolder(whole).result())
    for file in ("model.safetensors", "tasks/003.safetensors", "exemplars.safetensors"):
        actual, expected = read_tensors(folder.path / file)[0], read_tensors(whole / file)[0]
        assert set(actual) == set(expected)
        assert all(torch.equal(tensor, expected[name]) for name, tensor in actual.items())


def test_nothing_is_shared_with_other_runs(tmp_path: Path) -> None:
    listener = Silent()
    results = [
        run_quietly(tmp_path / method, method, *FEW, first_tasks=tmp_path / "first-tasks", listener=listener)
        for method in ("lda", "ridge")
    ]
    assert results[0]["first_task"] != results[1]["first_task"]
    assert results[0]["summary"] == results[1]["summary"]
    assert listener.skipped_images == 0
    assert not (tmp_path / "first-tasks").exists()


@pytest.mark.parametrize("method", ["lda", "ranpac", "fecam"])
def test_model_predicts_and_learns(method: str, tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", method, *FEW, *OPTIONS.get(method, ()), "data.classes=6")
    model = cscct.load(tmp_path / "run")
    assert model.method == method
    test = load_dataset(settings_for("lda"), None, print).test
    names = [str(label) for label in test.labels.tolist()]
    seen = [index for index, name in enumerate(names) if name in model.class_names]
    seen = [index for name in model.class_names for index in [i for i in seen if names[i] == name][:10]]
    images = test.images.pixels  # type: ignore[union-attr]
    confusion = RunFolder(tmp_path / "run").task(1)[f"confusion.{method}"]
    correct = [model.predict(images[index : index + 1])[0] == names[index] for index in seen]
    assert sum(correct) == int(confusion.diagonal().sum())
    new = next(name for name in names if name not in model.class_names)
    model.learn(images[[index for index, name in enumerate(names) if name == new]], new, quiet=True)
    assert len(model.class_names) == 7
    model.save(tmp_path / "model")
    restored = cscct.load(tmp_path / "model")
    assert type(restored.predictor_) is type(model.predictor_)
    np.testing.assert_array_equal(restored.predict_proba(images[:20]), model.predict_proba(images[:20]))


@pytest.mark.parametrize("addition", ["csc", "cscct"])
@pytest.mark.parametrize("method", HEADLINE)
def test_addons_are_rejected(method: str, addition: str) -> None:
    with pytest.raises(UserError, match=rf"{method} trains nothing, so \+{addition} has nothing to act on"):
        settings_for(f"{method}+{addition}")


@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        (
            "lucir",
            "network.train_backbone=false",
            "cross_entropy has nothing to act on: use lda",
        ),
        ("lda", "loss.cross_entropy.weight=1", "cross_entropy has nothing to act on"),
        ("lda", "finetune.epochs=1", "finetune has nothing to act on"),
        ("ridge", "network.head=linear", "needs network.head cosine, not linear"),
    ],
)
def test_inconsistent_settings(method: str, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings_for(method, "digits", override)


def test_report_omits_training_settings(whole: Path, tmp_path: Path) -> None:
    (group,) = groups_in(whole)
    assert not any(name.startswith("train.") for name in group.effective)
    description: dict[str, Any] = protocol(group.settings, 4)
    assert (description["Losses"], description["Training"], description["Prediction"][:3]) == (
        "none",
        "none: the network stays as it is",
        "LDA",
    )
    assert group.label_with_prediction == "lda"
    assert "lda" in write_report([whole], tmp_path / "report", warn=print).read_text()
