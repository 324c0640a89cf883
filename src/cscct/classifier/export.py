"""A classifier as one file for other programs, ONNX or TorchScript, with normalisation, head and class names inside.

Input `images`: float32 (n, channels, height, width), RGB, values from 0 to 1, resized and cropped as the metadata say.
Outputs `probabilities` (n, classes) and `features` (n, d). n is free, the size of the images is fixed.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import __version__
from ..data.augment import resize
from ..errors import RunFailed, UserError
from ..nets import Network
from ..nets.resnet import pool
from ..predictors import LinearPredictor
from ..runs.files import temporary_name
from ..runs.model import TrainedModel
from ..specs import TransformSpec
from .estimator import IncrementalClassifier
from .from_run import RunClassifier

SUFFIXES = {"onnx": ".onnx", "torchscript": ".torchscript"}
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4  # between probabilities of the file and of the classifier
Runner = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class ExportParts:
    """What a model is made of, for a file.

    network: from normalised images to features and logits. shape: channels, height and width of its images. cropped:
    these are the central squares of larger ones.
    """

    network: nn.Module
    shape: tuple[int, int, int]
    transform: TransformSpec
    class_names: tuple[str, ...]
    cropped: bool


class NetworkScores(nn.Module):
    """The network of a run: its own head, or the nearest of `means`."""

    def __init__(self, network: Network, means: Tensor | None):
        super().__init__()
        self.network = network
        self.means = None if means is None else nn.Buffer(means.to(network.head.scale.device))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        output = self.network(images)
        scores = output.scores if self.means is None else F.normalize(output.features, dim=1) @ self.means.T
        return output.features, scores * output.scale


class PredictorScores(nn.Module):
    """A backbone, and a linear predictor on its pooled features.

    Scores that all classes share do not change probabilities; without them 32 bits are enough.
    """

    def __init__(self, backbone: nn.Module, predictor: LinearPredictor):
        super().__init__()
        self.backbone, self.unit = backbone, predictor.unit
        weight, bias = predictor.weight.double(), predictor.bias.double()
        self.weight = nn.Buffer(((weight - weight.mean(dim=0)) / predictor.temperature).float())
        self.bias = nn.Buffer(((bias - bias.mean()) / predictor.temperature).float())

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = pool(self.backbone(images)[-1])
        return features, F.linear(F.normalize(features, dim=1) if self.unit else features, self.weight, self.bias)


class _Pipeline(nn.Module):
    """Images with values from 0 to 1 in; probabilities and features out."""

    def __init__(self, parts: ExportParts):
        super().__init__()
        self.network, self.size = parts.network, parts.transform.size
        self.mean = nn.Buffer(torch.tensor(parts.transform.mean).view(-1, 1, 1))
        self.std = nn.Buffer(torch.tensor(parts.transform.std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.network(resize((images - self.mean) / self.std, self.size))
        return logits.softmax(dim=1), features


def export(model: IncrementalClassifier | TrainedModel, to: str, out: Path) -> Path:
    """Write a model to a file and check that it says there what it says here, to 1e-4; else nothing is left of it.

    Args:
        model: An `IncrementalClassifier`, or what `cscct.load` gives of a run.
        to: `onnx` or `torchscript`.
        out: The file; replaced if it is there.
    """
    if to not in SUFFIXES:
        raise UserError(f"Models are exported to {' or '.join(SUFFIXES)}, not to {to!r}.")
    missing = [name for name in PACKAGES if to == "onnx" and importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"ONNX needs packages that are not installed ({', '.join(missing)}): pip install 'cscct[onnx]'."
        )
    if out.is_dir() or not out.parent.is_dir():
        reason = "is a folder" if out.is_dir() else "lies in a folder that does not exist"
        raise UserError(f"{out} {reason}: name the file to write with --out.")
    parts = parts_of(model)
    temporary = temporary_name(out)
    pipeline = _Pipeline(parts).cpu().eval().requires_grad_(False)
    try:
        runner = (_write_onnx if to == "onnx" else _write_torchscript)(pipeline, parts, temporary)
        _check(model, parts, runner, to)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return out


def parts_of(model: IncrementalClassifier | TrainedModel) -> ExportParts:
    """The parts of either kind of model."""
    if isinstance(model, TrainedModel):
        transform, means = model.reader.transform, model.class_means if model.prediction == "nme" else None
        size = model.reader.image_size or ((transform.size, transform.size) if transform.size else None)
        if size is None:
            raise UserError("This run does not tell the size of its images, which a file needs.")
        shape, network = (model.reader.channels, *size), model.inference_network()
        linear = model.linear
        scores = NetworkScores(network, means) if linear is None else PredictorScores(network.backbone, linear)
        return ExportParts(scores, shape, transform, model.class_names, cropped=model.reader.image_size is None)
    if isinstance(model, RunClassifier):
        raise UserError("The model of a run is exported as cscct.load gives it, not as a classifier that can learn.")
    if model.backbone is None:
        raise UserError("A classifier of features (backbone=None) has no network that could be exported.")
    extractor, head = model._extractor, model._head()
    side = extractor.transform.size or 0
    scores = PredictorScores(extractor.network, head)
    return ExportParts(scores, (3, side, side), extractor.transform, model.class_names, cropped=True)


def metadata(parts: ExportParts) -> dict[str, Any]:
    """What the file tells of itself, under the names that Ultralytics gives in its exports."""
    channels, height, width = parts.shape
    resized = {"resize": parts.transform.short_side, "crop": "centre"} if parts.cropped else {}
    return {
        "description": f"Image classifier with {len(parts.class_names)} classes",
        "author": "cscct",
        "version": __version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "task": "classify",
        "stride": 1,
        "batch": 1,
        "imgsz": [height, width],
        "channels": channels,
        "names": dict(enumerate(parts.class_names)),
        **resized,
    }


def _write_onnx(pipeline: nn.Module, parts: ExportParts, path: Path) -> Runner:
    example = torch.rand(2, *parts.shape)
    with _quiet("torch.onnx"):
        program = torch.onnx.export(
            pipeline,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["probabilities", "features"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    if program is None:
        raise RunFailed("torch has no ONNX program of this network.")
    program.model.metadata_props.update({key: str(value) for key, value in metadata(parts).items()})
    program.save(str(path), external_data=False)
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: session.run(["probabilities"], {"images": images})[0]


def _write_torchscript(pipeline: nn.Module, parts: ExportParts, path: Path) -> Runner:
    with _quiet("torch.jit"):
        traced = torch.jit.trace(pipeline, torch.rand(2, *parts.shape), check_trace=False)
        torch.jit.save(traced, str(path), _extra_files={"config.txt": json.dumps(metadata(parts))})
        loaded = torch.jit.load(str(path), map_location="cpu")
    return lambda images: loaded(torch.from_numpy(images))[0].numpy()


def _check(model: IncrementalClassifier | TrainedModel, parts: ExportParts, runner: Runner, to: str) -> None:
    """Noise of several scales, one image and several at a time, through the classifier and through the file."""
    channels, height, width = parts.shape
    margins = [parts.transform.short_side - side if parts.cropped else 0 for side in (height, width)]
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (3, channels, 8, 8), dtype=np.uint8)
    full = [side + margin for side, margin in zip((height, width), margins, strict=True)]
    pictures = F.interpolate(torch.from_numpy(coarse).float(), full, mode="bilinear").round().byte().numpy()
    top, left = (round(margin / 2) for margin in margins)
    seen = (pictures[:, :, top : top + height, left : left + width] / 255).astype(np.float32)
    wanted = model.predict_proba(pictures)
    found = np.concatenate([runner(seen[:1]), runner(seen[1:])])
    error = float(np.abs(found - wanted).max())
    if not error <= TOLERANCE:
        raise RunFailed(
            f"The {to} file would give other probabilities than the classifier (they differ by {error:.2g}), so it was "
            "not kept: the network does something that this format cannot hold."
        )


@contextlib.contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Without torch's own remarks: on packages that are not needed, on shapes that are constants here."""
    before = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def default_file(model: Path, to: str) -> Path:
    """In the working folder, under the name of the model's folder."""
    return Path(model.resolve().name + SUFFIXES.get(to, ""))
