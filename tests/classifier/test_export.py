"""Exported files give, in the hands of other programs, the probabilities that cscct gives."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import cscct
from conftest import run_quietly
from cscct import IncrementalClassifier
from cscct.classifier import export as exporting
from cscct.classifier.export import export
from cscct.errors import RunFailed, UserError
from small_models import blobs, colours_model, pictures

IMAGES = (load_digits().images[:7] * 255 / 16).round().astype("uint8")[:, None]
SEEN = IMAGES.astype("float32") / 255  # without any code of cscct


@pytest.fixture(scope="module", params=["null", "12"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 8 pixels, which the network sees as they are, or enlarged."""
    folder = tmp_path_factory.mktemp("export") / "run"
    size = f"data.transform.size={request.param}"
    run_quietly(folder, "lucir", "train.epochs=1", "data.train_per_class=20", "network.depth=8", size)
    return folder


@pytest.mark.parametrize("prediction", ["classifier", "nme"])
def test_onnx_says_the_same_in_plain_onnxruntime(run: Path, prediction: str, tmp_path: Path) -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime", reason="pip install 'cscct[onnx]'")
    model = cscct.load(run, prediction=prediction)
    file = export(model, "onnx", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for count in (1, 7):  # the number of images is free
        probabilities, features = session.run(["probabilities", "features"], {"images": SEEN[:count]})
        np.testing.assert_allclose(probabilities, model.predict_proba(IMAGES[:count]), atol=1e-4)
        np.testing.assert_allclose(features, model.features(IMAGES[:count]), atol=1e-3)
    told = session.get_modelmeta().custom_metadata_map
    assert ast.literal_eval(told["names"]) == dict(enumerate(model.class_names))
    assert (told["task"], ast.literal_eval(told["imgsz"]), told["channels"]) == ("classify", [8, 8], "1")
    assert {"author", "date", "version", "stride", "batch", "description"} <= set(told)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_torchscript_says_the_same(run: Path, tmp_path: Path) -> None:
    model = cscct.load(run)
    file = export(model, "torchscript", tmp_path / "m.torchscript")
    extra = {"config.txt": ""}
    loaded = torch.jit.load(str(file), _extra_files=extra)
    for count in (1, 7):
        probabilities = loaded(torch.from_numpy(SEEN[:count]))[0].numpy()
        np.testing.assert_allclose(probabilities, model.predict_proba(IMAGES[:count]), atol=1e-4)
    assert json.loads(extra["config.txt"])["names"] == {str(i): name for i, name in enumerate(model.class_names)}


@pytest.mark.parametrize("predictor", ["ncm", "lda", "ridge"])
def test_a_classifier_with_each_predictor_says_the_same(predictor: str, tmp_path: Path) -> None:
    model = colours_model(predictor=predictor)
    file = export(model, "torchscript", tmp_path / "m.torchscript")
    images = pictures((120, 60, 120), 5)
    seen = np.stack([np.asarray(_as_documented(Image.fromarray(image), 16, 18)) for image in images])
    found = torch.jit.load(str(file))(torch.from_numpy(seen.transpose(0, 3, 1, 2) / np.float32(255)))[0].numpy()
    np.testing.assert_allclose(found, model.predict_proba(images), atol=1e-4)


def _as_documented(image: Image.Image, size: int, short_side: int) -> Image.Image:
    width, height = (short_side * side // min(image.size) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def test_a_file_that_says_something_else_is_not_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = cscct.load(run)
    real = model.predict_proba
    monkeypatch.setattr(model, "predict_proba", lambda images: real(images) + 2e-4)
    (tmp_path / "m.torchscript").write_text("what was there")
    with pytest.raises(RunFailed, match=r"differ by 0\.0002"):
        export(model, "torchscript", tmp_path / "m.torchscript")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["what was there"]


def test_what_cannot_be_exported_is_said(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cscct.load(run)
    with pytest.raises(UserError, match="onnx or torchscript, not to 'tflite'"):
        export(model, "tflite", tmp_path / "m")
    with pytest.raises(UserError, match="folder that does not exist"):
        export(model, "onnx", tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(UserError, match="is a folder"):
        export(model, "onnx", tmp_path)
    with pytest.raises(UserError, match=r"as cscct\.load gives it"):
        export(IncrementalClassifier.load(run), "torchscript", tmp_path / "m")
    features, labels = blobs(2, 4)
    with pytest.raises(UserError, match="no network"):
        export(IncrementalClassifier(None).learn(features, labels), "torchscript", tmp_path / "m")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else found(name))
    with pytest.raises(UserError, match=r"\(onnxscript\): pip install 'cscct\[onnx\]'"):
        export(model, "onnx", tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_default_file_has_the_name_of_the_model(tmp_path: Path) -> None:
    assert exporting.default_file(tmp_path / "flowers", "onnx") == Path("flowers.onnx")
    assert exporting.default_file(tmp_path / "flowers.v2", "torchscript") == Path("flowers.v2.torchscript")
