"""A model as a record of plain values and a set of files named by their content, and back."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ..errors import UserError
from ..nets.names import parse_backbone
from ..predictors import PREDICTORS, ClassStatistics, LinearPredictor
from ..runs.files import plain_tensors
from ..specs import Spec, TransformSpec
from .features import backbone_module
from .report import LearnReport

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

TensorFile = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.safetensors$")]
ImageFile = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.jpg$")]
CUSTOM = "custom"  # a module of the user's, which has to be passed again


@dataclass(frozen=True)
class PackedClass(Spec):
    """What a version holds of a class."""

    label: str | bool | int
    count: Annotated[int, Field(ge=1)]
    statistics: TensorFile
    exemplars: list[ImageFile]


@dataclass(frozen=True)
class Packed(Spec):
    """What a version holds of a model."""

    params: dict[str, Any]
    backbone: str | None  # its name
    weights: TensorFile | None
    transform: TransformSpec | None
    features: Annotated[int, Field(ge=1)]
    predictor: TensorFile | None
    temperature: float
    unit: bool
    classes: list[PackedClass]
    tuned: list[str | bool | int] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    def files(self) -> set[str]:
        """Names of all files that this version uses."""
        found = {name for one in self.classes for name in (one.statistics, *one.exemplars)}
        return found | {name for name in (self.weights, self.predictor) if name is not None}


class _Files:
    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, content: bytes, suffix: str) -> str:
        name = f"{hashlib.sha256(content).hexdigest()}.{suffix}"
        self.contents[name] = content
        return name

    def tensors(self, tensors: Mapping[str, Tensor]) -> str:
        return self.add(save(plain_tensors(dict(sorted(tensors.items())))), "safetensors")


def pack(model: IncrementalClassifier) -> tuple[Packed, dict[str, bytes]]:
    """The record of a model, and its files by name."""
    files = _Files()
    params = model.get_params(deep=False)
    name = params.pop("backbone")
    classes = []
    for label, one in model.statistics_.items():
        tensors = {f.name: getattr(one, f.name) for f in fields(one) if isinstance(getattr(one, f.name), Tensor)}
        images = [files.add(image, "jpg") for image in model.exemplars_.get(label, ())]
        classes.append(PackedClass(label, one.count, files.tensors(tensors), images))
    head = model._predictor
    extractor = getattr(model, "_extractor", None)
    packed = Packed(
        params=params,
        backbone=_architecture(name),
        weights=None if extractor is None else files.tensors(extractor.backbone.state_dict()),
        transform=None if extractor is None else extractor.transform,
        features=model.n_features_in_ if extractor is None else extractor.width,
        predictor=None if head is None else files.tensors({"weight": head.weight, "bias": head.bias}),
        temperature=1.0 if head is None else head.temperature,
        unit=False if head is None else head.unit,
        classes=classes,
        tuned=model.tuned_,
        history=model.history_,
        report=model.report_.as_dict(),
    )
    return packed, files.contents


def _architecture(backbone: str | nn.Module | None) -> str | None:
    """Without the file that weights came from: they are in the model."""
    if isinstance(backbone, nn.Module):
        return CUSTOM
    return None if backbone is None else parse_backbone(backbone).architecture


def unpack(
    packed: Packed, read: Callable[[str], bytes], backbone: nn.Module | None, device: str
) -> IncrementalClassifier:
    """The model of a record. read: gives the content of a file, checked against its name."""
    if packed.backbone == CUSTOM and backbone is None:
        raise UserError("This model was made with a module of your own: pass it again, as load(path, backbone=module).")
    from .estimator import IncrementalClassifier

    model = IncrementalClassifier(backbone=packed.backbone if backbone is None else backbone)
    unknown = sorted(set(packed.params) - set(model.get_params(deep=False)))
    if unknown or packed.params.get("predictor") not in PREDICTORS:
        raise UserError(f"The model has settings that are not known here: {', '.join(unknown) or 'predictor'}.")
    model.set_params(**packed.params | {"device": device})
    model._check_values()
    if packed.weights is not None and packed.backbone is not None and packed.transform is not None:
        own = packed.backbone if backbone is None else copy.deepcopy(backbone)  # its weights are replaced
        module = backbone_module(own, weights=False)
        weights = _tensors(read, packed.weights)
        try:
            module.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"The weights of the model do not fit the network {packed.backbone}.") from error
        model._set_backbone(module, packed.transform)
        if model._extractor.width != packed.features:
            raise UserError(
                f"The network gives {model._extractor.width} features, and the model has {packed.features}."
            )
    else:
        model.n_features_in_ = packed.features
    statistics = {one.label: _statistics(one, packed.features, read) for one in packed.classes}
    if len(statistics) < len(packed.classes) or len({type(label) for label in statistics}) > 1:
        raise UserError("The model is damaged: its labels are not different ones of one kind.")
    model._keep(statistics, _head(packed, read))
    model.exemplars_ = {one.label: [read(name) for name in one.exemplars] for one in packed.classes if one.exemplars}
    model.tuned_ = packed.tuned
    model.history_ = packed.history
    model.report_ = LearnReport.from_dict(packed.report)
    return model


def _tensors(read: Callable[[str], bytes], name: str) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load(read(name))
    except SafetensorError as error:
        raise UserError(f"The file {name} of the model does not hold tensors: {error}.") from error
    return found


def _statistics(one: PackedClass, width: int, read: Callable[[str], bytes]) -> ClassStatistics:
    tensors = _tensors(read, one.statistics)
    expected = {f.name for f in fields(ClassStatistics)} - {"count"}
    whole = set(tensors) == expected and all(
        t.is_floating_point() and 1 <= t.ndim <= 2 and t.shape[-1] == width and bool(t.isfinite().all())
        for t in tensors.values()
    )
    if not whole or not 0 < len(tensors["rows"]) <= one.count or tensors["rows"].ndim != 2:
        raise UserError(f"The statistics of the class {one.label!r} are damaged.")
    return ClassStatistics(one.count, **tensors)


def _head(packed: Packed, read: Callable[[str], bytes]) -> LinearPredictor | None:
    if packed.predictor is None:
        return None
    tensors = _tensors(read, packed.predictor)
    shapes = {name: tuple(one.shape) for name, one in tensors.items() if one.dtype == torch.float32}
    classes = len(packed.classes)
    if shapes != {"weight": (classes, packed.features), "bias": (classes,)} or not packed.temperature > 0:
        raise UserError("The predictor of the model is damaged: it does not fit its classes.")
    return LinearPredictor(tensors["weight"], tensors["bias"], packed.temperature, packed.unit)
