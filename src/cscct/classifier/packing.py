"""A model as a record of plain values and a set of files named by their content. `unpacking.py` builds it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from safetensors.torch import save
from torch import Tensor, nn

from ..data.encoding import media_type
from ..errors import UserError
from ..features import PREDICTORS, FittedPredictor, LinearPredictor
from ..nets import Network
from ..nets.names import parse_backbone
from ..specs import Spec, TransformSpec
from ..storage import plain_tensors
from .labels import check_is_text
from .reader import NetworkReader
from .training import TrainingState

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

CUSTOM = "custom"  # a module of the user, which has to be passed again


def _check_label(label: str | bool | int) -> str | bool | int:
    if isinstance(label, str):
        try:
            check_is_text(label)
        except UserError as error:
            raise ValueError(str(error)) from error
        if not label:
            raise ValueError("a label is empty")
    elif not -(2**63) <= label < 2**63:
        raise ValueError(f"the label {label} is not a 64-bit integer")
    return label


TensorFile = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.safetensors$")]
ImageFile = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.(jpg|png)$")]
PackedLabel = Annotated[str | bool | int, AfterValidator(_check_label)]
ImageCount = Annotated[int, Field(ge=1, le=10**9)]
Side = Annotated[int, Field(ge=1, le=4096)]  # of an image in pixels
LINEAR = "linear"  # predictors with linear scores need no registered part


@dataclass(frozen=True)
class PackedClass(Spec):
    """What a version stores of a class."""

    label: PackedLabel
    count: ImageCount
    statistics: TensorFile
    exemplars: list[ImageFile]
    photos: TensorFile | None = None  # identities and names


@dataclass(frozen=True)
class PackedTraining(Spec):
    """What a version stores of a network that comes from a run or was trained; its `weights` then include the head."""

    config: dict[str, Any]
    channels: Annotated[int, Field(ge=1, le=3)]
    image_size: tuple[Side, Side] | None
    state: TensorFile  # class means and stored targets
    tasks: Annotated[int, Field(ge=0, le=10**6)]
    held_out: bool
    task_sizes: list[Annotated[int, Field(ge=1, le=10**6)]] = field(default_factory=list)


@dataclass(frozen=True)
class Packed(Spec):
    """What a version stores of a model."""

    params: dict[str, Any]
    backbone: str | None  # its name
    weights: TensorFile | None
    transform: TransformSpec | None
    features: Annotated[int, Field(ge=1, le=10**6)]
    predictor: TensorFile | None
    temperature: Annotated[float, Field(ge=1e-12, le=1e12)]
    unit: bool
    classes: list[PackedClass]
    tuned: list[PackedLabel] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    training: PackedTraining | None = None
    evaluation: TensorFile | None = None
    thumbnails: dict[str, ImageFile] = field(default_factory=dict)
    novelty: TensorFile | None = None
    kind: str = LINEAR  # name of the registered predictor, unless its scores are linear

    def files(self) -> set[str]:
        """Return the names of all files that this version uses."""
        names = {name for packed in self.classes for name in (packed.statistics, *packed.exemplars, packed.photos)}
        state = None if self.training is None else self.training.state
        names |= {self.weights, self.predictor, state, self.evaluation, self.novelty, *self.thumbnails.values()}
        return {name for name in names if name is not None}


class _Files:
    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, content: bytes, suffix: str) -> str:
        name = f"{hashlib.sha256(content).hexdigest()}.{suffix}"
        self.contents[name] = content
        return name

    def image(self, content: bytes) -> str:
        return self.add(content, "png" if media_type(content) == "image/png" else "jpg")

    def tensors(self, tensors: Mapping[str, Tensor]) -> str:
        return self.add(save(plain_tensors(dict(sorted(tensors.items())))), "safetensors")


def pack(model: IncrementalClassifier) -> tuple[Packed, dict[str, bytes]]:
    """Return the record of a model, and the contents of its files by name."""
    files = _Files()
    params = model.get_params(deep=False)
    name = params.pop("backbone")
    state = model.state_.completed
    classes = []
    for label, stats in state.statistics.items():
        tensors = {f.name: getattr(stats, f.name) for f in fields(stats) if isinstance(getattr(stats, f.name), Tensor)}
        images = [files.image(image) for image in state.exemplars.get(label, ())]
        photos = files.tensors(state.photos[label].padded(stats.count).tensors()) if label in state.photos else None
        classes.append(PackedClass(label, stats.count, files.tensors(tensors), images, photos))
    reader, head = state.reader, state.predictor
    packed = Packed(
        params=params,
        backbone=_architecture(name),
        weights=None if reader is None else files.tensors(_weights(reader.network, state.training)),
        transform=None if reader is None else reader.format.transform,
        features=model.n_features_in_ if reader is None else reader.features,
        predictor=None if head is None else files.tensors(_predictor_tensors(head)),
        temperature=1.0 if head is None else head.temperature,
        unit=head.unit if isinstance(head, LinearPredictor) else False,
        classes=classes,
        tuned=model.tuned_,
        history=model.history_,
        report=model.report_.as_dict(),
        training=_pack_training(state.training, reader, files) if state.training and reader else None,
        evaluation=None if state.evaluation is None else files.tensors(state.evaluation.tensors()),
        thumbnails={id: files.image(image) for id, image in state.thumbnails.items()},
        novelty=None if state.novelty is None else files.tensors(state.novelty.tensors()),
        kind=_kind(head),
    )
    return packed, files.contents


def _predictor_tensors(predictor: FittedPredictor) -> dict[str, Tensor]:
    """Return the tensors of a predictor. The temperature is stored in the record."""
    return {name: tensor for name, tensor in predictor.tensors().items() if name != "temperature"}


def _kind(predictor: FittedPredictor | None) -> str:
    """Return the name of the predictor that returns fitted predictors of this type."""
    if predictor is None or isinstance(predictor, LinearPredictor):
        return LINEAR
    return next(name for name, part in PREDICTORS.items() if part.fitted is type(predictor))


def _weights(network: Network, training: TrainingState | None) -> dict[str, Tensor]:
    return network.state_dict() if training is not None and training.config else network.backbone.state_dict()


def _pack_training(training: TrainingState, reader: NetworkReader, files: _Files) -> PackedTraining | None:
    if not training.config:
        return None
    labels = list(training.stored)
    tensors = {"means": training.means} | {f"stored.{i}": training.stored[label] for i, label in enumerate(labels)}
    tensors |= {f"extension.{name}": tensor for name, tensor in training.extension.items()}
    config = {**training.config, "stored_labels": labels} if labels else dict(training.config)
    return PackedTraining(
        config=config,
        channels=reader.format.channels,
        image_size=reader.format.size,
        state=files.tensors(tensors),
        tasks=training.tasks,
        held_out=training.held_out,
        task_sizes=list(training.task_sizes),
    )


def _architecture(backbone: str | nn.Module | None) -> str | None:
    """Return the backbone name without the weights file: the weights are stored in the model."""
    if isinstance(backbone, nn.Module):
        return CUSTOM
    return None if backbone is None else parse_backbone(backbone).architecture
