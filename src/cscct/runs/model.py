"""The trained network of a run, for use: class names, probabilities and features of images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..config import NumericsSpec
from ..config.schema import as_json
from ..data.images import ImageReader
from ..data.registry import DATASETS
from ..errors import UserError
from ..learn.build import network_for
from ..learn.device import choose_device
from ..learn.precision import precision_of
from ..learn.predict import HEADLINES, Evaluator
from ..memory import nearest_mean
from ..nets import HEADS, Network, architectures, for_inference, parse_backbone
from ..specs import NetworkSpec, TransformSpec
from ..yamltext import Raw
from .folder import MODEL, RunFolder

T = TypeVar("T")


class TrainedModel:
    """What `cscct.load` gives: the network of a run with its class names, preprocessing and class means.

    Images are a uint8 array or tensor (n, channels, height, width), a PIL image, a path, or a list of images or paths.

    Attributes:
        class_names: In the order in which they were learned, which is that of the columns of `predict_proba`.
        prediction: `classifier` or `nme` (nearest mean of exemplars).
        class_means: (classes, dimensions), of unit length.
        reader: Brings images into the form that the network reads.
    """

    def __init__(
        self, evaluator: Evaluator, means: Tensor, class_names: Sequence[str], images: ImageReader, prediction: str
    ):
        self.class_names, self.prediction = tuple(class_names), prediction
        self.class_means, self.reader = means, images
        self._evaluator = evaluator

    def __repr__(self) -> str:
        return f"TrainedModel({len(self.class_names)} classes, prediction={self.prediction!r})"

    def predict(self, images: Any) -> NDArray[np.str_]:
        """The class name of each image."""
        features, scores = self._read(images)
        labels = nearest_mean(features, self.class_means) if self.prediction == "nme" else scores.argmax(dim=1)
        return np.array(self.class_names)[labels.numpy()]

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """(n, classes): softmax of the classifier's logits, or of the cosines to the class means times the head's
        scale. Neither is calibrated."""
        features, scores = self._read(images)
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

    prediction: `classifier` or `nme`; by default the one that the method stands for. backbone: a name to use instead of
    the one in the folder.
    """
    folder = RunFolder(Path(path))
    config, result = folder.config(), folder.result()
    if not (folder.path / MODEL).is_file():
        raise UserError(f"The run in {folder.path} is not finished, so there is no model in it: cscct resume it first.")
    tensors, metadata = _read_model(folder.path / MODEL)
    means = tensors.pop("class_means")
    prediction = prediction or str(result.get("headline", "classifier"))
    if prediction not in HEADLINES:
        raise UserError(f"prediction must be {' or '.join(HEADLINES)}, not {prediction!r}.")
    transform = _section(config.get("data", {}), "transform", TransformSpec, folder)
    channels = int(metadata.get("channels") or _channels(tensors))
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
    network = network_for(spec, channels, seed=0, pretrained=False)
    try:
        network.load(tensors)
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{folder.path / MODEL} does not fit the network that {folder.path} describes.") from error
    target = torch.device(choose_device(device))
    numerics = _section(config, "numerics", NumericsSpec, folder)
    evaluator = Evaluator(
        network.to(target, memory_format=torch.channels_last),  # type: ignore[call-overload]
        int(config.get("runtime", {}).get("eval_batch_size", 128)),
        target,
        precision=precision_of(numerics.precision, target),
        prepare=partial(for_inference, fold=numerics.fold),
    )
    reader = ImageReader(transform, channels, _image_size(metadata, config))
    return TrainedModel(evaluator, means, _class_names(metadata, result), reader, prediction)


def _read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or not readable: {error}.") from error


def _section(config: Raw, name: str, kind: type[T], folder: RunFolder) -> T:
    try:
        return TypeAdapter(kind).validate_json(as_json(config.get(name) or {}))
    except ValidationError as error:
        raise UserError(f"The section {name} in the config of {folder.path} is damaged: {error}.") from error


def _channels(tensors: dict[str, Tensor]) -> int:
    """Of the images: the first convolution tells, where the file does not (version 0.2)."""
    return int(tensors["backbone.stem.0.weight"].shape[1])


def _image_size(metadata: dict[str, str], config: Raw) -> tuple[int, int] | None:
    """Height and width of images that were learned as they were stored."""
    if "image_size" in metadata:
        size = json.loads(metadata["image_size"])
        return (int(size[0]), int(size[1])) if size else None
    kind = DATASETS.get(str(config.get("dataset")))
    return (kind.extent.size, kind.extent.size) if kind and kind.extent else None


def _class_names(metadata: dict[str, str], result: dict[str, Any]) -> list[str]:
    if "class_names" in metadata:
        return [str(name) for name in json.loads(metadata["class_names"])]
    return [str(name) for entry in result.get("tasks", ()) for name in entry["classes"]]
