"""The trained network of a run, for use: class names, probabilities and features of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from ..config import NumericsSpec
from ..config.schema import RuntimeSpec, as_json
from ..data.images import ImageReader
from ..data.registry import DATASETS
from ..errors import UserError
from ..learn.build import network_for
from ..learn.device import choose_device
from ..learn.precision import precision_of
from ..learn.predict import HEADLINES, LINEAR, Evaluator
from ..memory import nearest_mean
from ..nets import HEADS, Network, architectures, for_inference, parse_backbone
from ..predictors import LinearPredictor
from ..specs import NetworkSpec, TransformSpec
from ..yamltext import Raw
from .files import read_tensors
from .folder import MODEL, RunFolder

T = TypeVar("T")
Pixels = Annotated[int, Field(ge=1, le=65535)]


class TrainedModel:
    """What `cscct.load` gives: the network of a run with its class names, preprocessing and class means.

    Images are a uint8 array or tensor (n, channels, height, width), a PIL image, a path, or a list of images or paths.

    Attributes:
        class_names: In the order in which they were learned, which is that of the columns of `predict_proba`.
        prediction: `classifier`, `nme` (nearest mean of exemplars), `lda` or `ridge`.
        class_means: (classes, dimensions), of unit length.
        linear: What `lda` or `ridge` predicts with, else None.
        reader: Brings images into the form that the network reads.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        means: Tensor,
        class_names: Sequence[str],
        images: ImageReader,
        prediction: str,
        linear: LinearPredictor | None = None,
    ):
        self.class_names, self.prediction = tuple(class_names), prediction
        self.class_means, self.linear, self.reader = means, linear, images
        self._evaluator = evaluator

    def __repr__(self) -> str:
        return f"TrainedModel({len(self.class_names)} classes, prediction={self.prediction!r})"

    def predict(self, images: Any) -> NDArray[np.str_]:
        """The class name of each image."""
        features, scores = self._read(images)
        if self.linear is not None:
            labels = self.linear.scores(features).argmax(dim=1)
        else:
            labels = nearest_mean(features, self.class_means) if self.prediction == "nme" else scores.argmax(dim=1)
        return np.array(self.class_names)[labels.numpy()]

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """(n, classes): softmax of the classifier's logits, or of the cosines to the class means times the head's
        scale; neither is calibrated. Those of `lda` and `ridge` are, on exemplars left out one by one."""
        features, scores = self._read(images)
        if self.linear is not None:
            found: NDArray[np.float32] = self.linear.probabilities(features).numpy()
            return found
        scale = self._evaluator.network.head.scale.detach().float().cpu()
        if self.prediction == "nme":
            scores = torch.nn.functional.normalize(features, dim=1) @ self.class_means.T
        probabilities: NDArray[np.float32] = (scores * scale).softmax(dim=1).numpy()
        return probabilities

    def features(self, images: Any) -> NDArray[np.float32]:
        """(n, dimensions): the signed pooled features that the head, herding and the losses read."""
        found: NDArray[np.float32] = self._read(images)[0].numpy()
        return found

    def inference_network(self) -> Network:
        """The network in the form that predicts: frozen, from normalised images to `Output`."""
        return self._evaluator.prepare(self._evaluator.network)

    def _read(self, images: Any) -> tuple[Tensor, Tensor]:
        view, count = self.reader.view(images)
        if count == 0:
            return torch.empty(0, self.class_means.shape[1]), torch.empty(0, len(self.class_names))
        outputs = list(self._evaluator.read(view, torch.arange(count)))
        return torch.cat([one.features for one in outputs]), torch.cat([one.scores for one in outputs])


def load_model(
    path: str | Path, *, prediction: str | None = None, device: str = "auto", backbone: str | None = None
) -> TrainedModel:
    """The model of a finished run, from its folder alone: the data is not needed, nor are plugins with losses.

    prediction: `classifier`, `nme`, `lda` or `ridge`; by default the one that the method stands for. backbone: a name
    to use instead of the one in the folder.
    """
    folder = RunFolder(Path(path))
    config, result = folder.config(), folder.result()
    if not (folder.path / MODEL).is_file():
        raise UserError(f"The run in {folder.path} is not finished, so there is no model in it: cscct resume it first.")
    tensors, metadata = _read_model(folder.path / MODEL)
    names, means = _classes(tensors, metadata, result, folder)
    prediction = prediction or str(result.get("headline", "classifier"))
    if prediction not in HEADLINES:
        raise UserError(f"prediction must be {' or '.join(HEADLINES)}, not {prediction!r}.")
    predictor = _predictor(tensors, means, prediction, folder)
    transform = _section(config.get("data", {}), "transform", TransformSpec, folder)
    channels = _described(metadata, "channels", Literal[1, 3], folder) or _channels(tensors)
    spec = _section(config, "network", NetworkSpec, folder)
    spec = replace(spec, backbone=backbone or spec.backbone)
    wanted = parse_backbone(spec.backbone)
    parts = (("backbone", wanted.architecture, architectures(wanted)), ("head", spec.head, HEADS))
    for kind, name, known in parts:
        if name not in known:
            raise UserError(
                f"The run in {folder.path} has the {kind} {name!r}, which is not known here: load the plugin that "
                "registers it, or pass your own module to cscct.load(..., backbone=...)."
            )
    try:
        network = network_for(spec, channels, seed=0, pretrained=False)
        network.load(tensors)
    except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise UserError(f"{folder.path / MODEL} does not fit the network that {folder.path} describes.") from error
    target = torch.device(choose_device(device))
    numerics = _section(config, "numerics", NumericsSpec, folder)
    evaluator = Evaluator(
        network.to(target, memory_format=torch.channels_last),  # type: ignore[call-overload]
        _section(config, "runtime", RuntimeSpec, folder).eval_batch_size,
        target,
        precision=precision_of(numerics.precision, target),
        prepare=partial(for_inference, fold=numerics.fold),
    )
    reader = ImageReader(transform, channels, _image_size(metadata, config, folder))
    return TrainedModel(evaluator, means, names, reader, prediction, predictor)


def _read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        return read_tensors(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged or not readable: {error}.") from error


def _predictor(tensors: dict[str, Tensor], means: Tensor, prediction: str, folder: RunFolder) -> LinearPredictor | None:
    """What `lda` or `ridge` predicts with, if one is asked for; both are taken out of the tensors."""
    names = {name: [key for key in tensors if key.startswith(f"{name}.")] for name in LINEAR}
    stored = {
        name: {key.removeprefix(f"{name}."): tensors.pop(key) for key in keys} for name, keys in names.items() if keys
    }
    if prediction not in LINEAR:
        return None
    if prediction not in stored:
        raise UserError(
            f"The run in {folder.path} is of a version that did not store {prediction}: use classifier or nme."
        )
    try:
        predictor = LinearPredictor.from_tensors(stored[prediction])
    except (LookupError, ValueError, RuntimeError) as error:
        raise UserError(f"{folder.path / MODEL} is damaged: {prediction} in it is incomplete.") from error
    if predictor.weight.shape != means.shape or predictor.bias.shape != means.shape[:1]:
        raise UserError(f"{folder.path / MODEL} is damaged: {prediction} in it does not fit the classes.")
    return predictor


def _section(config: Any, name: str, kind: type[T], folder: RunFolder) -> T:
    try:
        return TypeAdapter(kind).validate_json(as_json(dict(config).get(name) or {}))
    except (ValueError, TypeError) as error:  # a ValidationError is a ValueError
        raise UserError(f"The section {name} in the config of {folder.path} is damaged: {error}.") from error


def _described(metadata: dict[str, str], name: str, kind: Any, folder: RunFolder) -> Any:
    """What the file of the weights says of itself, or None; older versions wrote nothing there."""
    try:
        return TypeAdapter(kind).validate_json(metadata[name]) if name in metadata else None
    except ValidationError as error:
        raise UserError(f"{folder.path / MODEL} is damaged: {name} in it is {metadata[name][:40]!r}.") from error


def _channels(tensors: dict[str, Tensor]) -> int:
    """Of the images: the first convolution tells, where the file does not (version 0.2)."""
    weight = tensors.get("backbone.stem.0.weight", torch.empty(0))
    return int(weight.shape[1]) if weight.ndim == 4 else 3


def _image_size(metadata: dict[str, str], config: Raw, folder: RunFolder) -> tuple[int, int] | None:
    """Height and width of images that were learned as they were stored."""
    if "image_size" in metadata:
        size: tuple[int, int] | None = _described(metadata, "image_size", tuple[Pixels, Pixels] | None, folder)
        return size
    kind = DATASETS.get(str(config.get("dataset")))
    return (kind.extent.size, kind.extent.size) if kind and kind.extent else None


def _classes(
    tensors: dict[str, Tensor], metadata: dict[str, str], result: dict[str, Any], folder: RunFolder
) -> tuple[list[str], Tensor]:
    """Names and means of the classes; the means are taken out of the tensors."""
    names = _described(metadata, "class_names", list[str], folder)
    if names is None:
        try:
            names = [str(name) for entry in result.get("tasks", ()) for name in entry["classes"]]
        except (TypeError, KeyError) as error:
            raise UserError(f"The result in {folder.path} is damaged: it does not name the classes.") from error
    means = tensors.pop("class_means", torch.empty(0))
    if means.ndim != 2 or len(means) != len(names) or not means.is_floating_point():
        raise UserError(f"{folder.path / MODEL} is damaged: it does not hold a mean for each of {len(names)} classes.")
    return names, means.float()
