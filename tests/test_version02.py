"""Run folders of version 0.2 are loaded and reported, but not continued."""

import json
import shutil
from pathlib import Path

import pytest
from sklearn.metrics import accuracy_score

import cscct
from cscct.config import resolve
from cscct.data.registry import LoadRequest, load
from cscct.errors import UserError
from cscct.runs.folder import RunFolder

STORED = Path(__file__).parent / "version02" / "icarl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "icarl"))


def test_accuracy_of_the_model(folder: Path) -> None:
    model, result = cscct.load(folder), json.loads((folder / "result.json").read_text())
    dataset = load("digits", LoadRequest(None, False, 0.2, 1, print))
    truth = [dataset.class_names[label] for label in dataset.test.labels]
    for prediction in ("classifier", "nme"):
        model = cscct.load(folder, predictor=prediction)
        measured = 100 * accuracy_score(truth, model.predict(dataset.test.images.pixels))  # type: ignore[union-attr]
        stored = result["summary"][prediction]["last_accuracy"]
        assert measured == pytest.approx(stored, abs=1.0)  # images at a boundary may fall to the other side elsewhere
    assert set(model.class_names) == set(dataset.class_names)


def test_missing_predictors_are_rejected(folder: Path) -> None:
    with pytest.raises(UserError, match="stored no predictor 'lda': use one of classifier, nme"):
        cscct.load(folder, predictor="lda")


def test_renamed_settings(folder: Path) -> None:
    config = RunFolder(folder).config()
    assert config["numerics"]["precision"] == "32-true"
    assert "precision" not in config["runtime"]
    assert resolve(config=config).numerics.fold is True


def test_resume(folder: Path) -> None:
    assert cscct.resume(folder).summary["last_accuracy"] > 0  # type: ignore[operator]
    (folder / "result.json").unlink()
    with pytest.raises(UserError, match=r"created by cscct 0\.2\.0.*not continued"):
        cscct.resume(folder)
