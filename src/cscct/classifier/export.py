"""Export of a classifier to a single ONNX or `torch.export` file with normalisation, head and class names.

Input `images`: float32 (n, channels, height, width), RGB, values from 0 to 1, resized and cropped as the metadata say.
Outputs `probabilities` (n, classes), `features` (n, d) and `unknown_score` (n,), which is high for images that resemble
no class. n is free, the size of the images is fixed.
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
from ..data.augment import PixelTransform, resize
from ..errors import RunFailed, UserError, install_hint
from ..features import FittedPredictor, LinearPredictor
from ..nets import Network
from ..nets.resnet import pool
from ..specs import TransformSpec
from ..storage import temporary_path
from .model import Model
from .unknown import FALSE_ALARMS, NoveltyCalibration, NoveltyDetector

SUFFIXES = {"onnx": ".onnx", "pt2": ".pt2", "torchscript": ".torchscript"}  # the last is deprecated
DEPRECATED = (
    "PyTorch no longer develops TorchScript: export to pt2 instead. torchscript will be removed in version 0.5."
)
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4  # between probabilities of the file and of the classifier
SCORE_TOLERANCE = 1e-2  # between scores of unknown images, whose differences matter from about 0.1
Runner = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], NDArray[np.float32]]]


@dataclass(frozen=True)
class ExportParts:
    """Parts of a model that are exported.

    network: from normalised images to features and logits. shape: channels, height and width of its images. cropped:
    these are the central squares of larger ones.
    """

    network: nn.Module
    shape: tuple[int, int, int]
    transform: TransformSpec
    class_names: tuple[str, ...]
    cropped: bool
    novelty: NoveltyDetector


class NetworkScores(nn.Module):
    """A network with its own classifier: features and logits."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        output = self.network(images)
        return output.features, output.scores * output.scale


class PredictorScores(nn.Module):
    """A backbone, and a predictor on its pooled features."""

    def __init__(self, backbone: nn.Module, predictor: FittedPredictor):
        super().__init__()
        self.backbone, self.predictor = backbone, predictor

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = pool(self.backbone(images)[-1])
        return features, self.predictor.scores(features) / self.predictor.temperature


class LinearScores(nn.Module):
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
    """Images with values from 0 to 1 in; probabilities, features and the score of unknown images out."""

    def __init__(self, parts: ExportParts):
        super().__init__()
        self.network, self.size = parts.network, parts.transform.size
        transform = PixelTransform(parts.transform)
        self.factor, self.shift = nn.Buffer(255 * transform.factor), nn.Buffer(transform.shift)
        novelty = parts.novelty
        self.similarity = nn.Buffer((novelty.means / novelty.deviations[:, None]).float())
        self.offset = nn.Buffer((novelty.moments[:, 0] / novelty.deviations).float())
        self.weight = float(novelty.calibration.weight)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features, logits = self.network(resize(images * self.factor + self.shift, self.size))
        similarity = F.linear(F.normalize(features, dim=1), self.similarity) - self.offset
        score = -similarity.amax(dim=1) - self.weight * logits.log_softmax(dim=1).amax(dim=1)
        return logits.softmax(dim=1), features, score


def export(model: Model, to: str, out: Path) -> Path:
    """Write a model to a file, and check that the file gives the same outputs to within 1e-4. A file that does not is
    removed.

    Args:
        model: The model.
        to: `onnx`, or `pt2` for `torch.export`. `torchscript` is deprecated.
        out: The file; replaced if it is there.
    """
    if to not in SUFFIXES:
        raise UserError(f"Models are exported to onnx or pt2, not to {to!r}.")
    if to == "torchscript":
        warnings.warn(DEPRECATED, FutureWarning, stacklevel=3)
    missing = [name for name in PACKAGES if to == "onnx" and importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"ONNX needs packages that are not installed ({', '.join(missing)}): {install_hint('onnx')}.")
    if out.is_dir() or not out.parent.is_dir():
        reason = "is a folder" if out.is_dir() else "lies in a folder that does not exist"
        raise UserError(f"{out} {reason}: name the file to write with --out.")
    parts = parts_of(model)
    temporary = temporary_path(out)
    pipeline = _Pipeline(parts).cpu().eval().requires_grad_(False)
    try:
        runner = _WRITERS[to](pipeline, parts, temporary)
        _check(model, parts, runner, to)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return out


def parts_of(model: Model) -> ExportParts:
    """Return the parts of a model for export.

    Raises:
        UserError: The model reads features, or accepts images of any size.
    """
    if model.backbone is None:
        raise UserError("A model of features (backbone=None) has no network that could be exported.")
    reader, predictor = model.reader_, model.predictor_
    shape = reader.format.shape
    if shape is None:
        raise UserError("The model does not store the size of its images, which an exported file needs.")
    network = reader.inference
    scores: nn.Module
    if predictor is None:
        scores = NetworkScores(network)
    elif isinstance(predictor, LinearPredictor):
        scores = LinearScores(network.backbone, predictor)
    else:
        scores = PredictorScores(network.backbone, predictor)
    cropped = reader.format.size is None
    return ExportParts(scores, shape, reader.format.transform, model.class_names, cropped, model.novelty_)


def metadata(parts: ExportParts) -> dict[str, Any]:
    """Return the metadata of the file, with the keys that Ultralytics uses in its exports."""
    channels, height, width = parts.shape
    transform = parts.transform
    resized = {"resize": transform.short_side, "crop": "centre", "interpolation": transform.interpolation}
    resized = resized if parts.cropped else {}
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
        **_threshold(parts.novelty.calibration),
    }


def _threshold(calibration: NoveltyCalibration) -> dict[str, float]:
    """Return the score above which images are unknown at 5 % false alarms, or nothing if there are too few images."""
    return {} if calibration.refusal() is not None else {"unknown_threshold": calibration.threshold(FALSE_ALARMS)}


def _write_onnx(pipeline: nn.Module, parts: ExportParts, path: Path) -> Runner:
    example = torch.rand(2, *parts.shape)
    with _quiet("torch.onnx"):
        program = torch.onnx.export(
            pipeline,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["probabilities", "features", "unknown_score"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    if program is None:
        raise RunFailed("torch has no ONNX program of this network.")
    program.model.metadata_props.update({key: str(value) for key, value in metadata(parts).items()})
    program.save(str(path), external_data=False)
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: tuple(session.run(["probabilities", "unknown_score"], {"images": images}))


def _write_pt2(pipeline: nn.Module, parts: ExportParts, path: Path) -> Runner:
    batch = torch.export.Dim("batch")
    with _quiet("torch.export"):
        program = torch.export.export(pipeline, (torch.rand(2, *parts.shape),), dynamic_shapes=({0: batch},))
        torch.export.save(program, path, extra_files={"config.txt": json.dumps(metadata(parts))})
        loaded = torch.export.load(path).module()
    return lambda images: tuple(output.numpy() for output in loaded(torch.from_numpy(images))[::2])


def _write_torchscript(pipeline: nn.Module, parts: ExportParts, path: Path) -> Runner:
    with _quiet("torch.jit"):
        traced = torch.jit.trace(pipeline, torch.rand(2, *parts.shape), check_trace=False)
        torch.jit.save(traced, str(path), _extra_files={"config.txt": json.dumps(metadata(parts))})
        loaded = torch.jit.load(str(path), map_location="cpu")
    return lambda images: tuple(output.numpy() for output in loaded(torch.from_numpy(images))[::2])


_WRITERS = {"onnx": _write_onnx, "pt2": _write_pt2, "torchscript": _write_torchscript}


def _check(model: Model, parts: ExportParts, runner: Runner, to: str) -> None:
    """Compare the outputs of the classifier and of the file for noise of several scales, with one and with several
    images."""
    channels, height, width = parts.shape
    margins = [parts.transform.short_side - side if parts.cropped else 0 for side in (height, width)]
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (3, channels, 8, 8), dtype=np.uint8)
    full = [side + margin for side, margin in zip((height, width), margins, strict=True)]
    pictures = F.interpolate(torch.from_numpy(coarse).float(), full, mode="bilinear").round().byte().numpy()
    top, left = (round(margin / 2) for margin in margins)
    seen = (pictures[:, :, top : top + height, left : left + width] / 255).astype(np.float32)
    wanted = model.predict_proba(pictures)
    probabilities, scores = (np.concatenate(both) for both in zip(runner(seen[:1]), runner(seen[1:]), strict=True))
    error = float(np.abs(probabilities - wanted).max())
    score_error = float(np.abs(scores - model.unknown_scores(pictures)).max())
    if not (error <= TOLERANCE and score_error <= SCORE_TOLERANCE * max(1.0, float(np.abs(scores).max()))):
        raise RunFailed(
            f"The {to} file would give other probabilities than the classifier (they differ by {error:.2g}), so it was "
            "not kept: the network does something that this format cannot hold."
        )


@contextlib.contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Suppress messages of torch about missing packages and constant shapes."""
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
    """Return the default file: in the working directory, named after the model folder."""
    return Path(model.resolve().name + SUFFIXES.get(to, ""))
