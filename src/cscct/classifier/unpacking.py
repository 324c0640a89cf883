"""Build the model of a stored version. Values and tensors are checked, because a folder may come from others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from ..data.inputs import ImageFormat
from ..errors import UserError
from ..features import PREDICTORS, ClassStatistics, FittedPredictor, LinearPredictor
from ..learn.device import choose_device
from ..specs import TransformSpec
from .evaluation import Evaluation
from .labels import Label
from .networks import build_reader
from .packing import CUSTOM, LINEAR, Packed, PackedClass, PackedLabel, Side
from .photos import ClassPhotos
from .reader import NetworkReader
from .report import LearnReport
from .run_model import Backbone, network_from_config, reader_from_config
from .state import ModelState
from .training import TrainingState
from .unknown import NoveltyCalibration

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

UNIT_TOLERANCE = 1e-3
EXTENSION = "extension."  # begins the names of tensors of a method's own state, whose range is not known


def unpack(
    packed: Packed, read: Callable[[str], bytes], backbone: Backbone | None, device: str
) -> IncrementalClassifier:
    """Build the model of a record.

    Args:
        packed: The record.
        read: Returns the content of a file, checked against its name.
        backbone: The module of a model that was made with one.
        device: Where the model runs.

    Raises:
        UserError: If a value or a tensor is invalid.
    """
    try:
        return _unpack(packed, read, backbone, device)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # of settings and tensors that are valid one by one and do not fit each other
        raise UserError(f"The model is damaged ({type(error).__name__}: {str(error)[:200]}).") from error


def _unpack(
    packed: Packed, read: Callable[[str], bytes], backbone: Backbone | None, device: str
) -> IncrementalClassifier:
    if packed.backbone == CUSTOM and backbone is None:
        raise UserError("This model was made with a module of your own: pass it again, as load(path, backbone=module).")
    if backbone is not None and not isinstance(backbone, nn.Module):
        backbone = backbone(packed.training.channels if packed.training else 3)
    from .estimator import IncrementalClassifier
    from .parameters import check_parameters

    model = IncrementalClassifier(backbone=packed.backbone if backbone is None else backbone)
    params = _current_params(packed.params)
    unknown = sorted(set(params) - set(model.get_params(deep=False)))
    if unknown:
        raise UserError(f"The model has parameters that are unknown to this version: {', '.join(unknown)}.")
    model.set_params(**params | {"device": device})
    check_parameters(model)
    reader = _unpack_reader(packed, read, model, backbone)
    if reader is None:
        model.n_features_in_ = packed.features
    elif reader.features != packed.features:
        raise UserError(f"The network has {reader.features} features, and the model has {packed.features}.")
    statistics = {entry.label: _unpack_statistics(entry, packed.features, read) for entry in packed.classes}
    if len(statistics) < len(packed.classes) or len({type(label) for label in statistics}) > 1:
        raise UserError("The model is damaged: its labels are not distinct labels of one type.")
    exemplars = {entry.label: [read(name) for name in entry.exemplars] for entry in packed.classes if entry.exemplars}
    if not set(packed.tuned) <= set(statistics):
        raise UserError("The model is damaged: its network was trained on classes that it does not have.")
    training = _unpack_training(packed, read)
    head = _unpack_predictor(packed, read)
    if head is None and packed.classes and (training is None or reader is None):
        raise UserError("The model is damaged: it has classes and no predictor.")
    if head is None and reader is not None and packed.classes and reader.network.head.classes != len(packed.classes):
        raise UserError("The model is damaged: its network does not have the classes of the model.")
    photos = {
        entry.label: ClassPhotos.from_tensors(_tensors(read, entry.photos), entry.count)
        for entry in packed.classes
        if entry.photos is not None
    }
    thumbnails = {id: read(name) for id, name in packed.thumbnails.items()}
    evaluation, novelty = read_evaluation(packed, read), read_novelty(packed, read)
    model.restore_state(
        ModelState(reader, statistics, head, exemplars, training, photos, evaluation, thumbnails, novelty)
    )
    model.history_ = packed.history
    model.report_ = LearnReport.from_dict(packed.report)
    return model


def read_evaluation(packed: Packed, read: Callable[[str], bytes]) -> Evaluation | None:
    """Return the stored evaluation of a record, or None.

    Args:
        packed: The record.
        read: Returns the content of a file, checked against its name.
    """
    if packed.evaluation is None:
        return None
    return Evaluation.from_tensors(_tensors(read, packed.evaluation), [entry.count for entry in packed.classes])


def read_novelty(packed: Packed, read: Callable[[str], bytes]) -> NoveltyCalibration | None:
    """Return the stored calibration of unknown images of a record, or None.

    Args:
        packed: The record.
        read: Returns the content of a file, checked against its name.
    """
    return None if packed.novelty is None else NoveltyCalibration.from_tensors(_tensors(read, packed.novelty))


def _current_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the parameters of models of version 0.3, which had `predictor` and `finetune`, to their current form."""
    params = dict(params)
    predictor, finetune = params.pop("predictor", None), params.pop("finetune", None)
    if predictor is not None and (not isinstance(predictor, str) or predictor not in PREDICTORS):
        raise UserError(f"The model has the predictor {predictor!r}, which is unknown to this version.")
    if finetune == "never":
        params["method"] = predictor or "lda"
    elif finetune is not None:
        params |= {"predictor": predictor, "finetune": finetune}
    elif predictor is not None:
        params["predictor"] = predictor
    return params


def _unpack_reader(
    packed: Packed, read: Callable[[str], bytes], model: IncrementalClassifier, backbone: nn.Module | None
) -> NetworkReader | None:
    if packed.weights is None or packed.backbone is None or packed.transform is None:
        return None
    channels = 3 if packed.training is None else packed.training.channels
    _check_transform(packed.transform, channels, fixed_size=packed.training is not None and packed.training.image_size)
    weights = _tensors(read, packed.weights)
    negative = [name for name, tensor in weights.items() if name.endswith("running_var") and bool((tensor < 0).any())]
    if negative:
        raise UserError(f"The weights of the model are damaged: {negative[0]} has negative values.")
    target = torch.device(choose_device(model.device))
    module = None if backbone is None else copy.deepcopy(backbone)  # its weights are replaced
    try:
        if packed.training is None:
            reader = build_reader(module or packed.backbone, None, target, model.batch_size, weights=False)
            network = reader.network
            network.backbone.load_state_dict(weights)
            return NetworkReader(network, ImageFormat(packed.transform), target, model.batch_size)
        network = network_from_config(packed.training.config, packed.training.channels, module)
        network.load(weights)
    except (RuntimeError, LookupError) as error:
        raise UserError(f"The weights of the model do not fit the network {packed.backbone}.") from error
    format = ImageFormat(packed.transform, packed.training.channels, packed.training.image_size)
    return reader_from_config(packed.training.config, network, format, target)


def _check_transform(transform: TransformSpec, channels: int, *, fixed_size: object) -> None:
    """Check the image format; `fixed_size` is set if all images have the size of those that were learned."""
    if transform.size is None and not fixed_size:
        raise UserError("The model is damaged: transform.size is missing.")
    for name, value in {"size": transform.size or 1, "padding": transform.padding + 1}.items():
        try:
            TypeAdapter(Side).validate_python(value)
        except ValidationError as error:
            raise UserError(f"The model is damaged: transform.{name} is out of range.") from error
    if any(abs(value) > 1e3 for value in transform.mean) or not all(1e-4 <= value <= 1e4 for value in transform.std):
        raise UserError("The model is damaged: transform.mean or transform.std is out of range.")
    if {len(transform.mean), len(transform.std)} - {1, channels}:
        raise UserError(f"The model is damaged: transform.mean and transform.std do not have {channels} values.")


def _unpack_training(packed: Packed, read: Callable[[str], bytes]) -> TrainingState | None:
    if packed.training is None:  # version 0.3 kept the labels only
        return TrainingState({}, torch.empty(0), 1, {}, list(packed.tuned)) if packed.tuned else None
    tensors = _tensors(read, packed.training.state)
    config = dict(packed.training.config)
    labels: list[Label] = TypeAdapter(list[PackedLabel]).validate_python(config.pop("stored_labels", []), strict=True)
    TypeAdapter(dict[str, Any]).validate_python(config.get("predict", {}))
    means = tensors.get("means", torch.empty(0))
    if means.ndim > 2 or not means.is_floating_point() or (means.ndim == 2 and means.shape[1] != packed.features):
        raise UserError("The class means of the model are damaged.")
    stored = {label: tensors[f"stored.{i}"] for i, label in enumerate(labels) if f"stored.{i}" in tensors}
    return TrainingState(
        config=config,
        means=means,
        tasks=packed.training.tasks,
        stored=stored,
        labels=list(packed.tuned),
        held_out=packed.training.held_out,
        task_sizes=packed.training.task_sizes,
        extension={name.removeprefix(EXTENSION): rows for name, rows in tensors.items() if name.startswith(EXTENSION)},
    )


def _tensors(read: Callable[[str], bytes], name: str) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load(read(name))
    except (SafetensorError, AttributeError) as error:  # the latter: a type that torch does not have
        raise UserError(f"The file {name} of the model does not contain tensors: {error}.") from error
    for key, tensor in tensors.items():
        if not key.startswith(EXTENSION) and not bool(tensor.isfinite().all()):
            raise UserError(f"The file {name} of the model is damaged: {key} contains values that are not finite.")
    return tensors


def _unpack_statistics(entry: PackedClass, width: int, read: Callable[[str], bytes]) -> ClassStatistics:
    tensors = _tensors(read, entry.statistics)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.is_floating_point()}
    rows = shapes.pop("rows", ())
    expected = {(min(entry.count, width), width), (entry.count, width)}  # a summary, or all samples
    valid = shapes == {"total": (width,), "directions": (width,)} and rows in expected
    # `directions` is a sum of `count` unit vectors
    if not valid or float(tensors["directions"].norm()) > entry.count * (1 + UNIT_TOLERANCE):
        raise UserError(f"The statistics of the class {entry.label!r} are damaged.")
    return ClassStatistics(entry.count, **tensors)


def _unpack_predictor(packed: Packed, read: Callable[[str], bytes]) -> FittedPredictor | None:
    if packed.predictor is None:
        return None
    if packed.kind != LINEAR and packed.kind not in PREDICTORS:
        raise UserError(f"The model has the predictor {packed.kind!r}, which is unknown: load the plugin with it.")
    tensors = {**_tensors(read, packed.predictor), "temperature": torch.tensor(packed.temperature, dtype=torch.float64)}
    fitted = PREDICTORS[packed.kind].fitted if packed.kind != LINEAR else LinearPredictor
    try:
        predictor = fitted.from_tensors(tensors)
    except (LookupError, ValueError, RuntimeError) as error:
        raise UserError(f"The predictor of the model is damaged: {error}.") from error
    if not predictor.fits(len(packed.classes), packed.features):
        raise UserError("The predictor of the model is damaged: it does not fit its classes.")
    if not isinstance(predictor, LinearPredictor):
        return predictor
    norms = predictor.weight.norm(dim=1)
    norms = norms[norms > 0]  # a class without a direction
    unit_rows = bool(((norms - 1).abs() < UNIT_TOLERANCE).all()) and not predictor.bias.any()
    if len(norms) and packed.unit != unit_rows:  # only predictors of unit features have such weights
        raise UserError("The predictor of the model is damaged: its weights and `unit` do not fit.")
    return replace(predictor, unit=packed.unit)
