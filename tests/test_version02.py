"""Run folders of version 0.2 are loaded, reported and read; only going on with one is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from sklearn.metrics import accuracy_score

import cscct
from cscct.config import resolve
from cscct.data.registry import LoadRequest, load
from cscct.errors import UserError
from cscct.report import write_report
from cscct.runs.folder import RunFolder

STORED = Path(__file__).parent / "version02" / "icarl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "icarl"))


def test_its_model_predicts_what_the_run_measured(folder: Path) -> None:
    model, result = cscct.load(folder), json.loads((folder / "result.json").read_text())
    dataset = load("digits", LoadRequest(None, False, 0.2, 1, print))
    truth = [dataset.class_names[label] for label in dataset.test.labels]
    for prediction in ("classifier", "nme"):
        model = cscct.load(folder, prediction=prediction)
        measured = 100 * accuracy_score(truth, model.predict(dataset.test.images.pixels))  # type: ignore[union-attr]
        stored = result["summary"][prediction]["last_accuracy"]
        assert measured == pytest.approx(stored, abs=1.0)  # images at a boundary may fall to the other side elsewhere
    assert set(model.class_names) == set(dataset.class_names)


def test_predictions_that_it_did_not_store_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="did not store lda: use classifier or nme"):
        cscct.load(folder, prediction="lda")


def test_it_is_reported(folder: Path, tmp_path: Path) -> None:
    page = write_report([folder], tmp_path / "report", warn=print)
    assert "icarl" in page.read_text()


def test_its_settings_have_their_present_names(folder: Path) -> None:
    config = RunFolder(folder).config()
    assert config["numerics"]["precision"] == "32-true"
    assert "precision" not in config["runtime"]
    assert resolve(config=config).numerics.fold is True


def test_resume_prints_a_finished_run_and_refuses_an_unfinished_one(folder: Path) -> None:
    assert cscct.resume(folder).summary["last_accuracy"] > 0  # type: ignore[operator]
    (folder / "result.json").unlink()
    with pytest.raises(UserError, match=r"made by cscct 0\.2\.0.*not continued"):
        cscct.resume(folder)
