"""Run folders and model folders of version 0.3 are loaded, predict the same, and keep learning."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cscct
from cscct.data.registry import LoadRequest, load
from cscct.errors import UserError
from cscct.nets import StagedBackbone
from cscct.reporting import write_report
from small_models import Colours, pictures

STORED = Path(__file__).parent / "version03"
QUERIES = np.concatenate([pictures((200, 60, 60), 3, 7), pictures((60, 60, 200), 3, 8)])


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "version03"))


def small_network() -> nn.Module:
    def convolution(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())

    return StagedBackbone(convolution(3, 6), [convolution(6, 8), nn.Conv2d(8, 12, 1)], features=12)


@pytest.mark.parametrize(("name", "backbone"), [("model", Colours()), ("tuned", small_network())])
def test_models_predict_the_same(name: str, backbone: nn.Module, folders: Path) -> None:
    model = cscct.load(folders / name, backbone=backbone)
    expected = np.array(json.loads((folders / "expected.json").read_text())[name])
    np.testing.assert_allclose(model.predict_proba(QUERIES), expected, atol=1e-4)


def test_a_model_keeps_learning(folders: Path) -> None:
    model = cscct.load(folders / "model", backbone=Colours())
    assert model.method == "ncm"
    model.learn(pictures((60, 200, 60), 8, 2), "green").save(folders / "model")
    assert cscct.load(folders / "model", backbone=Colours()).class_names == ("red", "blue", "green")


def test_classes_of_a_tuned_model(folders: Path) -> None:
    model = cscct.load(folders / "tuned", backbone=small_network())
    assert model.tuned_ == ["blue", "red"]
    with pytest.warns(UserWarning, match="trained on images of red"):
        model.forget("red")


def test_run_predicts_and_learns_by_means(folders: Path) -> None:
    result = json.loads((folders / "run" / "result.json").read_text())
    dataset = load("digits", LoadRequest(None, False, 0.2, 1, print))
    names = np.array(dataset.class_names)[dataset.test.labels]
    x = dataset.test.images.pixels.numpy()  # type: ignore[union-attr]
    for predictor in ("classifier", "nme", "lda", "ridge"):
        model = cscct.load(folders / "run", predictor=predictor)
        known = np.isin(names, model.class_names)
        measured = 100 * float((model.predict(x[known]) == names[known]).mean())
        assert measured == pytest.approx(result["summary"][predictor]["last_accuracy"], abs=1.0)
    new = next(name for name in dataset.class_names if name not in model.class_names)
    model = cscct.load(folders / "run")
    weights = {name: tensor.clone() for name, tensor in model.reader_.network.state_dict().items()}
    model.learn(x[names == new], new)
    assert "stored no exemplars" in model.report_.notes[0]
    assert all(torch.equal(tensor, weights[k]) for k, tensor in model.reader_.network.state_dict().items())


def test_a_run_is_reported_and_not_continued(folders: Path, tmp_path: Path) -> None:
    assert "lucir+cscct" in write_report([folders / "run"], tmp_path / "report", warn=print).read_text()
    (folders / "run" / "result.json").unlink()
    with pytest.raises(UserError, match=r"cscct 0\.3\.0"):
        cscct.resume(folders / "run")
