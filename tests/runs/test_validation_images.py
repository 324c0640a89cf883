"""Runs with validation images: they are not trained on, and are evaluated like test images."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import learner_for, run_command, run_quietly, settings_for, without_timings
from cscct.data.base import ArrayImages, Dataset, Split
from cscct.errors import Interrupted, UserError
from cscct.learn.build import build_stream
from cscct.learn.protocol import complete
from cscct.runs.folder import RunFolder
from cscct.runs.listeners import Listener
from cscct.runs.runner import execute
from cscct.runs.stored import check_result
from cscct.studies.datasets import load_dataset

SMALL = ("train.epochs=1", "data.train_per_class=20", "data.classes=4", "protocol.base=2", "runtime.threads=1")
VALIDATION = (*SMALL, "data.validation=0.25")
PROBLEM = ("--set", "data.validation=0.01", *(word for text in SMALL for word in ("--set", text)))


def test_the_network_is_that_of_the_dataset_without_these_images(tmp_path: Path) -> None:
    settings = settings_for("lucir+cscct", "digits", *VALIDATION)
    dataset = load_dataset(settings, None, print)
    stream = build_stream(complete(settings, dataset), dataset, print)
    kept = np.array(sorted(index for images in stream.train for index in images))
    assert isinstance(dataset.train.images, ArrayImages)
    others = [label for label in range(10) if label not in dataset.train.labels[kept]]
    extra = [int(np.flatnonzero(dataset.train.labels == label)[0]) for label in others]  # no class may be empty
    pixels = dataset.train.images.pixels[[*kept.tolist(), *extra]]
    train = Split(ArrayImages(pixels), np.array([*dataset.train.labels[kept], *others]))
    reduced = Dataset(dataset.name, dataset.class_names, train, dataset.test, dataset.channels)
    expected = execute(settings_for("lucir+cscct", "digits", *SMALL), reduced, RunFolder(tmp_path / "reduced"))
    result = execute(settings, dataset, RunFolder(tmp_path / "run"))
    assert result["weights_sha256"] == expected["weights_sha256"]
    assert result["matrix"] == expected["matrix"]
    assert "validation" not in expected
    assert result["validation"]["task_sizes"] == [10, 10]
    check_result(result)
    result["validation"]["matrix"]["classifier"].pop()
    with pytest.raises(ValueError, match="do not match"):
        check_result(result)


def test_accuracies_agree_with_a_count_over_the_images(tmp_path: Path) -> None:
    learner = learner_for("icarl", *VALIDATION)

    learner.learn(learner.stream.tasks[0], Listener())
    result = run_quietly(tmp_path / "run", "icarl", *VALIDATION)
    confusion = learner.evaluate(learner.stream.tasks[0], "validation").confusion["nme"]
    assert confusion.sum() == 10
    assert result["tasks"][0]["validation_accuracy"]["nme"] == 100 * int(confusion.diagonal().sum()) / 10
    trained = {index for ranked in learner.memory.exemplars.values() for index in ranked}
    assert not trained & {index for images in learner.stream.validation for index in images}


def test_a_stopped_run_keeps_its_validation_results(tmp_path: Path) -> None:
    frozen = ("network.train_from=1", "network.cached_views=1")
    settings = settings_for("lucir+cscct", "digits", *VALIDATION, *frozen)
    dataset = load_dataset(settings, None, print)

    class After(Listener):
        task = 0

        def task_finished(self, entry: Any) -> None:
            self.task += 1

    whole = execute(settings, dataset, RunFolder(tmp_path / "whole"))
    after = After()
    with pytest.raises(Interrupted):
        execute(settings, dataset, RunFolder(tmp_path / "run"), after, stop=lambda: after.task > 0)
    assert without_timings(execute(settings, dataset, RunFolder(tmp_path / "run"))) == without_timings(whole)
    assert len(whole["validation"]["matrix"][whole["headline"]]) == 2


def test_a_fraction_that_leaves_a_class_empty_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for words in (["run", "lucir", "digits"], ["compare", "lucir", "icarl", "--seeds", "1"]):
        done = run_command(tmp_path, *words, "--out", "out", *PROBLEM)
        assert (done.returncode, "data.validation" in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=r"data\.validation"):
        settings_for("lucir", "digits", "data.validation=1.0")


def test_tables_and_reports_show_validation_accuracy(tmp_path: Path) -> None:
    sets = [word for text in VALIDATION for word in ("--set", text)]
    done = run_command(tmp_path, "compare", "lucir", "icarl", "--seeds", "1", "--out", "out", *sets)
    assert "validation" in done.stdout, done.stderr
    shown = run_command(tmp_path, "run", "--config", "out/lucir-seed1/config.yaml", "--out", "out/lucir-seed1")
    assert "(validation)" in shown.stdout, shown.stderr
    result = json.loads((tmp_path / "out" / "lucir-seed1" / "result.json").read_text())
    average = result["validation"]["summary"]["classifier"]["average_incremental_accuracy"]
    stored = json.loads((tmp_path / "out" / "compare.json").read_text())["methods"][0]
    assert stored["validation"]["average_incremental_accuracy"]["mean"] == average
    assert run_command(tmp_path, "report", "out", "--out", "report").returncode == 0
    assert "validation images" in (tmp_path / "report" / "index.html").read_text()
    for file, column in (
        ("out/compare.csv", "validation_average_incremental_accuracy_mean"),
        ("report/runs.csv", "validation_classifier_average_incremental_accuracy"),
    ):
        with (tmp_path / file).open() as lines:
            row = next(row for row in csv.DictReader(lines) if row["method"] == "lucir")
        assert float(row[column]) == pytest.approx(average, abs=1e-3)
