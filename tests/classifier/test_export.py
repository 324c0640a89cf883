"""Exported files give the same probabilities in other programs."""

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
    more = ("predict.options.ranpac.dimension=30", "predict.options.fecam={}")
    run_quietly(folder, "lucir", "train.epochs=1", "data.train_per_class=20", "network.depth=8", size, *more)
    return folder


@pytest.mark.parametrize("prediction", ["classifier", "nme", "ranpac", "fecam"])
def test_onnx_in_plain_onnxruntime(run: Path, prediction: str, tmp_path: Path) -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime", reason="pip install 'cscct[onnx]'")
    model = cscct.load(run, predictor=prediction)
    file = export(model, "onnx", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for count in (1, 7):  # the number of images is free
        probabilities, features = session.run(["probabilities", "features"], {"images": SEEN[:count]})
        np.testing.assert_allclose(probabilities, model.predict_proba(IMAGES[:count]), atol=1e-4)
        np.testing.assert_allclose(features, model.features(IMAGES[:count]), atol=1e-3)
    metadata = session.get_modelmeta().custom_metadata_map
    assert ast.literal_eval(metadata["names"]) == dict(enumerate(model.class_names))
    assert (metadata["task"], ast.literal_eval(metadata["imgsz"]), metadata["channels"]) == ("classify", [8, 8], "1")
    assert {"author", "date", "version", "stride", "batch", "description"} <= set(metadata)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(("to", "prediction"), [("pt2", "classifier"), ("pt2", "fecam"), ("torchscript", "classifier")])
def test_files_for_torch(run: Path, to: str, prediction: str, tmp_path: Path) -> None:
    model = cscct.load(run, predictor=prediction)
    extra = {"config.txt": ""}
    loaded: Any
    if to == "pt2":
        loaded = torch.export.load(export(model, to, tmp_path / "m.pt2"), extra_files=extra).module()
    else:
        with pytest.warns(FutureWarning, match="pt2"):
            file = export(model, to, tmp_path / "m.torchscript")
        loaded = torch.jit.load(str(file), _extra_files=extra)
    for count in (1, 7):
        probabilities = loaded(torch.from_numpy(SEEN[:count]))[0].numpy()
        np.testing.assert_allclose(probabilities, model.predict_proba(IMAGES[:count]), atol=1e-4)
    assert json.loads(extra["config.txt"])["names"] == {str(i): name for i, name in enumerate(model.class_names)}


@pytest.mark.parametrize("predictor", ["ncm", "lda", "ridge"])
def test_predictors(predictor: str, tmp_path: Path) -> None:
    model = colours_model(method=predictor)
    file = export(model, "pt2", tmp_path / "m.pt2")
    images = pictures((120, 60, 120), 5)
    seen = np.stack([np.asarray(_as_documented(Image.fromarray(image), 16, 18)) for image in images])
    outputs = torch.export.load(file).module()(torch.from_numpy(seen.transpose(0, 3, 1, 2) / np.float32(255)))
    np.testing.assert_allclose(outputs[0], model.predict_proba(images), atol=1e-4)
    np.testing.assert_allclose(outputs[2], model.unknown_scores(images), rtol=1e-3, atol=1e-2)


def _as_documented(image: Image.Image, size: int, short_side: int) -> Image.Image:
    width, height = (short_side * side // min(image.size) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def test_file_with_other_outputs_is_not_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cscct.load(run)
    real = model.predict_proba
    monkeypatch.setattr(model, "predict_proba", lambda images: real(images) + 2e-4)
    (tmp_path / "m.pt2").write_text("what was there")
    with pytest.raises(RunFailed, match=r"differ by 0\.0002"):
        export(model, "pt2", tmp_path / "m.pt2")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["what was there"]


def test_user_errors(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cscct.load(run)
    with pytest.raises(UserError, match="onnx or pt2, not to 'tflite'"):
        export(model, "tflite", tmp_path / "m")
    with pytest.raises(UserError, match="folder that does not exist"):
        export(model, "onnx", tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(UserError, match="is a folder"):
        export(model, "onnx", tmp_path)
    features, labels = blobs(2, 4)
    with pytest.raises(UserError, match="no network"):
        export(IncrementalClassifier(None).learn(features, labels), "pt2", tmp_path / "m")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    with pytest.raises(UserError, match=r"\(onnxscript\): pip install 'cscct\[onnx\]'"):
        export(model, "onnx", tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
