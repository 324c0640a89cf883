"""The model of a run, built from its folder. Data and plugins with losses are not needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from ..config import NumericsSpec
from ..config.schema import RuntimeSpec, as_json
from ..data.inputs import ImageFormat
from ..data.registry import kind_of
from ..errors import UserError
from ..features import NETWORK_PREDICTORS, PREDICTORS, ClassStatistics, FittedPredictor, LinearPredictor
from ..learn.build import network_for
from ..learn.device import choose_device
from ..nets import HEADS, Network, architectures, parse_backbone
from ..runs.exemplars import RunExemplars, load_exemplars
from ..runs.folder import MODEL, RunFolder
from ..specs import MemorySpec, NetworkSpec, TransformSpec
from ..storage import read_tensors
from ..yamltext import Raw
from .labels import Label
from .networks import backbone_module, network_with_head
from .reader import NetworkReader
from .report import LearnReport
from .state import ModelState, fit_predictor
from .training import TrainingState

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

T = TypeVar("T")
Backbone = nn.Module | Callable[[int], nn.Module]  # a module, or a function of the channels that builds one
Pixels = Annotated[int, Field(ge=1, le=65535)]
MEAN_WEIGHT = 20  # images that a class mean counts for if nothing else is known of the class


def load_run(
    path: str | Path, *, predictor: str | None = None, device: str = "auto", backbone: Backbone | None = None
) -> IncrementalClassifier:
    """Load the model of a finished run.

    Args:
        path: The run folder.
        predictor: `classifier`, `nme`, `lda`, `ridge`, or another predictor that the run was evaluated with. Default:
            that of the method.
        device: `auto`, `cpu`, `cuda` or `mps`.
        backbone: Module (or factory) to use instead of the backbone in the settings.

    Raises:
        UserError: The run is not finished, or its files are damaged.
    """
    from .estimator import IncrementalClassifier

    folder = RunFolder(Path(path))
    config, result = folder.config(), folder.result()
    if not (folder.path / MODEL).is_file():
        raise UserError(f"The run in {folder.path} is not finished and has no model: cscct resume it first.")
    tensors, metadata = _read_model(folder.path / MODEL)
    names, means = _classes(tensors, metadata, result, folder)
    predictor = predictor or str(result.get("headline", "classifier"))
    fitted = _predictor(tensors, means, predictor, result, folder)
    transform = _section(config.get("data", {}), "transform", TransformSpec, folder)
    channels = _described(metadata, "channels", Literal[1, 3], folder) or _channels(tensors)
    network = _network(config, channels, backbone, folder)
    try:
        network.load(tensors)
    except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise UserError(f"{folder.path / MODEL} does not fit the network that {folder.path} describes.") from error
    format = ImageFormat(transform, channels, _image_size(metadata, config, folder))
    target = torch.device(choose_device(device))
    reader = NetworkReader(
        network,
        format,
        target,
        _section(config, "runtime", RuntimeSpec, folder).eval_batch_size,
        *_numerics(_section(config, "numerics", NumericsSpec, folder)),
    )
    stored = load_exemplars(folder.path)
    trained = _section(config, "network", NetworkSpec, folder).train_backbone
    training = TrainingState(
        config,
        means,
        len(result.get("tasks", ())),
        {names[label]: rows for label, rows in stored.stored.items() if label < len(names)},
        names if trained else (),
        held_out=False,
        task_sizes=[len(entry["classes"]) for entry in result.get("tasks", ())],
        extension=stored.extension,
    )
    statistics = _statistics(names, means, stored)
    exemplars: dict[Label, list[bytes]] = {names[i]: images for i, images in stored.images.items() if i < len(names)}
    state = ModelState(reader, statistics, fitted, exemplars, training)
    state = replace(state, predictor=fitted or fit_predictor(predictor, state, seed=0))
    memory = _section(config, "memory", MemorySpec, folder)
    model = IncrementalClassifier(
        backbone if isinstance(backbone, nn.Module) else _section(config, "network", NetworkSpec, folder).backbone,
        method=str(result.get("method") or config.get("method")),
        memory_per_class=memory.per_class,
        memory_mb=_section(config, "runtime", RuntimeSpec, folder).memory_mb,
        device=device,
        batch_size=reader.batch_size,
    )
    model.restore_state(state)
    model.report_ = LearnReport(new=names)
    model.history_ = []
    return model


def _statistics(names: list[str], means: Tensor, stored: RunExemplars) -> dict[Label, ClassStatistics]:
    """Return the statistics that the run stored, or else statistics with the mean of each class."""
    if len(stored.statistics) == len(names):
        width = means.shape[1]
        if all(stats.total.shape == (width,) and stats.rows.shape[1] == width for stats in stored.statistics.values()):
            return {name: stored.statistics[index] for index, name in enumerate(names)}
    return {name: ClassStatistics.of(mean.expand(MEAN_WEIGHT, -1)) for name, mean in zip(names, means, strict=True)}


def _numerics(numerics: NumericsSpec) -> tuple[str, bool]:
    return numerics.precision, numerics.fold


def _network(config: Raw, channels: int, backbone: Backbone | None, folder: RunFolder) -> Network:
    spec = _section(config, "network", NetworkSpec, folder)
    try:
        return _build(spec, channels, backbone)
    except LookupError as error:
        raise UserError(
            f"The run in {folder.path} has the {error.args[0]}, which is unknown: load the plugin that registers it, "
            "or pass your own module to cscct.load(..., backbone=...)."
        ) from error
    except (RuntimeError, ValueError, TypeError, ArithmeticError) as error:
        raise UserError(f"{folder.path / MODEL} does not fit the network that {folder.path} describes.") from error


def _build(spec: NetworkSpec, channels: int, backbone: Backbone | None) -> Network:
    """Build a part. Raises a `LookupError` with the name of an unknown part."""
    name = parse_backbone(spec.backbone)
    if backbone is None and name.architecture not in architectures(name):
        raise LookupError(f"backbone {name.architecture!r}")
    if spec.head not in HEADS:
        raise LookupError(f"head {spec.head!r}")
    if backbone is not None:
        module = copy.deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone(channels)
        return network_with_head(backbone_module(module), spec)
    return network_for(spec, channels, seed=0, pretrained=False)


def network_from_config(config: Mapping[str, Any], channels: int, backbone: Backbone | None) -> Network:
    """Build the network that settings describe, without classes; its weights are loaded afterwards.

    Args:
        config: Settings as `config.yaml` has them.
        channels: Channels of the images.
        backbone: A module to use as backbone; else the one that the settings name.
    """
    spec = TypeAdapter(NetworkSpec).validate_json(as_json(config.get("network") or {}))
    try:
        return _build(spec, channels, backbone)
    except LookupError as error:
        raise UserError(
            f"The model has the {error.args[0]}, which is unknown: load the plugin that registers it."
        ) from error


def reader_from_config(
    config: Mapping[str, Any], network: Network, format: ImageFormat, device: torch.device
) -> NetworkReader:
    """Build the reader of a trained network with the batch size and numerics of its settings."""
    runtime = TypeAdapter(RuntimeSpec).validate_json(as_json(config.get("runtime") or {}))
    numerics = TypeAdapter(NumericsSpec).validate_json(as_json(config.get("numerics") or {}))
    return NetworkReader(network, format, device, runtime.eval_batch_size, *_numerics(numerics))


def _read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        return read_tensors(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged or not readable: {error}.") from error


def _predictor(
    tensors: dict[str, Tensor], means: Tensor, name: str, result: Mapping[str, Any], folder: RunFolder
) -> FittedPredictor | None:
    """Return the stored predictor of a name, or None for one of the network. All are removed from the tensors."""
    stored: dict[str, dict[str, Tensor]] = {}
    for known in dict.fromkeys([*result.get("matrix", ()), *PREDICTORS]):
        keys = [key for key in tensors if key.startswith(f"{known}.")]
        if keys:
            stored[known] = {key.removeprefix(f"{known}."): tensors.pop(key) for key in keys}
    if name in NETWORK_PREDICTORS:
        return None
    if name not in stored:
        names = ", ".join([*NETWORK_PREDICTORS, *stored])
        raise UserError(f"The run in {folder.path} stored no predictor {name!r}: use one of {names}.")
    fitted = PREDICTORS[name].fitted if name in PREDICTORS else LinearPredictor
    try:
        predictor = fitted.from_tensors(stored[name])
    except (LookupError, ValueError, RuntimeError) as error:
        reason = f"{folder.path / MODEL} is damaged: {name} in it is incomplete."
        unknown = f"The run in {folder.path} has the predictor {name!r}, which is unknown: load the plugin with it."
        raise UserError(reason if name in PREDICTORS else unknown) from error
    if not predictor.fits(*means.shape):
        raise UserError(f"{folder.path / MODEL} is damaged: {name} in it does not fit the classes.")
    return predictor


def _section(config: Any, name: str, kind: type[T], folder: RunFolder) -> T:
    try:
        return TypeAdapter(kind).validate_json(as_json(dict(config).get(name) or {}))
    except (ValueError, TypeError) as error:  # a ValidationError is a ValueError
        raise UserError(f"The section {name} in the config of {folder.path} is damaged: {error}.") from error


def _described(metadata: dict[str, str], name: str, kind: Any, folder: RunFolder) -> Any:
    """Return the metadata in the file of the weights, or None. Older versions wrote none."""
    try:
        return TypeAdapter(kind).validate_json(metadata[name]) if name in metadata else None
    except ValidationError as error:
        raise UserError(f"{folder.path / MODEL} is damaged: {name} in it is {metadata[name][:40]!r}.") from error


def _channels(tensors: dict[str, Tensor]) -> int:
    """Return the number of channels of the images. Files of version 0.2 do not contain it, so it is taken from the
    first convolution."""
    weight = tensors.get("backbone.stem.0.weight", torch.empty(0))
    return int(weight.shape[1]) if weight.ndim == 4 else 3


def _image_size(metadata: dict[str, str], config: Raw, folder: RunFolder) -> tuple[int, int] | None:
    """Return height and width of the images in the dataset, if they were not resized."""
    if "image_size" in metadata:
        size: tuple[int, int] | None = _described(metadata, "image_size", tuple[Pixels, Pixels] | None, folder)
        return size
    kind = kind_of(str(config.get("dataset")))
    return (kind.extent.size, kind.extent.size) if kind and kind.extent else None


def _classes(
    tensors: dict[str, Tensor], metadata: dict[str, str], result: dict[str, Any], folder: RunFolder
) -> tuple[list[str], Tensor]:
    """Return names and means of the classes. The means are removed from the tensors."""
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
