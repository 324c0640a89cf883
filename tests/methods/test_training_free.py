"""Methods without training: statistics of the features of all images, in a network that stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import cscct
from conftest import THREADS, Silent, learner_for, run_quietly, settings_for, without_timings
from cscct.analysis.settings import protocol
from cscct.errors import Interrupted, UserError
from cscct.learn.dataset import load_dataset
from cscct.learn.predict import HEADLINES
from cscct.predictors import PREDICTORS, ClassStatistics
from cscct.report import write_report
from cscct.runs.files import read_tensors
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.studies.estimate import seconds
from synthetic import groups_in

FEW = ("data.train_per_class=70", "data.test_per_class=10")
HEADLINE = {"ncm": "nme", "lda": "lda", "ridge": "ridge"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of lda that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_quietly(folder, "lda", *FEW)
    return folder


@pytest.mark.parametrize("method", HEADLINE)
def test_it_runs_and_is_above_chance(method: str, tmp_path: Path) -> None:
    listener = Silent()
    result = run_quietly(tmp_path / "run", method, *FEW, listener=listener)
    assert (result["status"], result["headline"]) == ("finished", HEADLINE[method])
    assert set(result["summary"]) == set(HEADLINES)
    assert result["summary"][HEADLINE[method]]["last_accuracy"] > 30  # chance: 10
    assert listener.epochs == []
    assert result["matrix"]["classifier"] == result["matrix"]["nme"]  # its rows are the class means


def test_classes_one_after_another_are_as_all_at_once() -> None:
    """Digits have 70 images a class here and 64 features, so the statistics are compressed."""
    learner = learner_for("lda", *FEW)
    before = {name: tensor.clone() for name, tensor in learner.network.backbone.state_dict().items()}
    for task in learner.stream.tasks:
        known = dict(learner.statistics)
        learner.learn(task, Silent())
        assert all(learner.statistics[label] is one for label, one in known.items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.network.backbone.state_dict().items())
    assert all(one.count == 70 and one.samples is None for one in learner.statistics.values())
    found = []
    for members in learner.stream.train:
        features = learner.evaluator.features(learner.stream.train_view, torch.tensor(members))
        found.append(ClassStatistics.of(features))
    for name, predictor in learner.linear.items():
        weight = PREDICTORS[name](found).weight
        torch.testing.assert_close(predictor.weight, weight, rtol=1e-3, atol=1e-3 * float(weight.abs().max()))


def test_stopped_after_every_task_it_ends_as_if_nothing_had_happened(whole: Path, tmp_path: Path) -> None:
    settings = settings_for("lda", "digits", f"runtime.threads={THREADS}", *FEW)
    dataset = load_dataset(settings, None, print)
    folder = RunFolder(tmp_path / "run")
    for _ in range(3):
        with pytest.raises(Interrupted, match="cscct resume"):
            execute(settings, dataset, folder, stop=lambda: True)
    result = execute(settings, dataset, folder, stop=lambda: True)
    assert without_timings(result) == without_timings(RunFolder(whole).result())
    for file in ("model.safetensors", "tasks/003.safetensors"):
        found, expected = read_tensors(folder.path / file)[0], read_tensors(whole / file)[0]
        assert set(found) == set(expected)
        assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


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


def test_its_model_predicts_by_it(whole: Path) -> None:
    model = cscct.load(whole)
    assert model.prediction == "lda"
    images = load_dataset(settings_for("lda"), None, print).test.images.pixels[:20]  # type: ignore[union-attr]
    assert model.predict_proba(images).shape == (20, 10)


@pytest.mark.parametrize("addition", ["csc", "cscct"])
@pytest.mark.parametrize("method", HEADLINE)
def test_there_is_nothing_to_add_to(method: str, addition: str) -> None:
    with pytest.raises(UserError, match=rf"{method} trains nothing, so \+{addition} has nothing to act on"):
        settings_for(f"{method}+{addition}")


@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        ("lucir", "network.trained=false", "cross_entropy has nothing to act on: use one of the methods ncm, lda"),
        ("lda", "loss.cross_entropy.weight=1", "cross_entropy has nothing to act on"),
        ("lda", "finetune.epochs=1", "finetune has nothing to act on"),
        ("ridge", "network.head=linear", "needs network.head cosine, not linear"),
    ],
)
def test_settings_that_make_no_sense_are_refused(method: str, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings_for(method, "digits", override)


def test_it_is_reported_without_what_has_no_effect(whole: Path, tmp_path: Path) -> None:
    (group,) = groups_in(whole)
    assert not any(name.startswith("train.") for name in group.effective)
    words: dict[str, Any] = protocol(group.settings, 4)
    assert (words["Losses"], words["Training"], words["Prediction"][:3]) == (
        "none",
        "none: the network stays as it is",
        "LDA",
    )
    assert group.label_with_prediction == "lda"
    assert "lda" in write_report([whole], tmp_path / "report", warn=print).read_text()


def test_it_is_planned_to_take_less_than_training() -> None:
    less, more = seconds(settings_for("lda")), seconds(settings_for("lucir"))
    assert less is not None
    assert more is not None
    assert sum(less) < sum(more) / 10
