"""Registration of parts by name: methods, losses, datasets, and the parts that settings name.

Every function takes a name and returns a decorator. None of them imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .data.augmentation_registry import AUGMENTATIONS
from .data.registry import DatasetKind, Extent, LoadRequest
from .data.registry import register as _register_dataset
from .data.samplers import SAMPLERS
from .features import PREDICTORS
from .losses import WEIGHT_SCALINGS, Term
from .losses import register as _register_term
from .memory import HERDINGS, STORED_TARGETS
from .methods import AFTER_TASK, Extension, Method
from .methods import register as _register_method
from .methods import register_extension as _register_extension
from .nets.registries import register_backbone, register_head, register_imprint
from .optim import register_optimizer
from .registry import Registry, first_line

if TYPE_CHECKING:
    from .data.base import Dataset

__all__ = [
    "register_after_task",
    "register_augmentation",
    "register_backbone",
    "register_dataset",
    "register_extension",
    "register_head",
    "register_herding",
    "register_imprint",
    "register_loss",
    "register_method",
    "register_optimizer",
    "register_predictor",
    "register_sampler",
    "register_stored_target",
    "register_weight_scaling",
]

Part = TypeVar("Part")
TermClass = TypeVar("TermClass", bound=type[Term])
ExtensionClass = TypeVar("ExtensionClass", bound=type[Extension])
Settings = Mapping[str, Any]
Loader = Callable[[LoadRequest], "Dataset"]


@overload
def register_method(method: Method) -> Method: ...


@overload
def register_method(
    method: str,
    *,
    preset_from: str = "",
    addon_settings: Mapping[str, Settings] | None = None,
    addon_predictors: Mapping[str, str] | None = None,
) -> Callable[[Callable[[], Settings]], Callable[[], Settings]]: ...


def register_method(
    method: Method | str,
    *,
    preset_from: str = "",
    addon_settings: Mapping[str, Settings] | None = None,
    addon_predictors: Mapping[str, str] | None = None,
) -> Method | Callable[[Callable[[], Settings]], Callable[[], Settings]]:
    """Register a method, given as a `Method` or as a decorated function that returns its settings.

    Args:
        method: A `Method`, or the name of the method. With a name, the result decorates a function without arguments;
            the first line of its docstring is the summary.
        preset_from: See `Method`; only with a name.
        addon_settings: See `Method`; only with a name.
        addon_predictors: See `Method`; only with a name.

    Returns:
        The method, or a decorator.

    Raises:
        ValueError: If the name is taken.

    Examples:
        >>> from cscct import register_method
        >>> @register_method("plain-replay", preset_from="lucir")
        ... def plain_replay():
        ...     "Cross-entropy on new images and exemplars."
        ...     return {"network": {"freeze_old": False}, "loss": {"cross_entropy": {}}}
    """
    if isinstance(method, Method):
        return _register_method(method)
    name = method

    def add(settings: Callable[[], Settings]) -> Callable[[], Settings]:
        summary = first_line(settings.__doc__)
        _register_method(Method(name, summary, settings(), preset_from, addon_settings or {}, addon_predictors or {}))
        return settings

    return add


@overload
def register_loss(term: TermClass) -> TermClass: ...


@overload
def register_loss(term: str) -> Callable[[TermClass], TermClass]: ...


def register_loss(term: Any) -> Any:
    """Register a loss: a frozen dataclass derived from `cscct.losses.Term`.

    Args:
        term: Name of the loss, or the class itself if it defines `name`: `@register_loss("mine")` or `@register_loss`.

    Returns:
        A decorator, or the class.

    Raises:
        ValueError: If the name is taken.
    """
    return _named(term, _register_term)


def _named(part: Any, register: Callable[[Any], Any]) -> Any:
    """Register a class that defines `name`, or return a decorator that sets it."""
    if not isinstance(part, str):
        return register(part)

    def add(owner: Any) -> Any:
        owner.name = part
        return register(owner)

    return add


@overload
def register_extension(extension: ExtensionClass) -> ExtensionClass: ...


@overload
def register_extension(extension: str) -> Callable[[ExtensionClass], ExtensionClass]: ...


def register_extension(extension: Any) -> Any:
    """Register an extension: a frozen dataclass derived from `cscct.methods.Extension`.

    Args:
        extension: Name of the extension, or the class itself if it defines `name`.

    Returns:
        A decorator, or the class.

    Raises:
        ValueError: If the name is taken.
    """
    return _named(extension, _register_extension)


@overload
def register_dataset(kind: DatasetKind) -> None: ...


@overload
def register_dataset(
    kind: str,
    *,
    num_classes: int | None = None,
    extent: Extent | None = None,
    list_classes: Callable[[LoadRequest], Sequence[str]] | None = None,
) -> Callable[[Loader], Loader]: ...


def register_dataset(
    kind: DatasetKind | str,
    *,
    num_classes: int | None = None,
    extent: Extent | None = None,
    list_classes: Callable[[LoadRequest], Sequence[str]] | None = None,
) -> Callable[[Loader], Loader] | None:
    """Register a dataset, given as a `DatasetKind` or as a decorated function that loads it.

    Args:
        kind: A `DatasetKind`, or the name of the dataset. With a name, the result decorates a function that takes a
            `LoadRequest` and returns a `Dataset`; the first line of its docstring is the summary.
        num_classes: Number of classes, if it is known before loading; only with a name.
        extent: Approximate size of the dataset; only with a name.
        list_classes: Function that returns the class names without reading images; only with a name.

    Returns:
        A decorator, or None for a `DatasetKind`.

    Raises:
        UserError: If the name is taken.
    """
    if isinstance(kind, DatasetKind):
        _register_dataset(kind)
        return None
    name = kind

    def add(load: Loader) -> Loader:
        summary = first_line(load.__doc__)
        _register_dataset(DatasetKind(name, summary, num_classes, load, False, extent, list_classes))
        return load

    return add


def register_after_task(name: str) -> Callable[[Part], Part]:
    """Decorate a function of a `cscct.methods.TaskContext` that may change the head after a task.

    Args:
        name: Value of `network.after_task`.
    """
    return _decorator(AFTER_TASK, name)


def register_augmentation(name: str) -> Callable[[Part], Part]:
    """Decorate a function that changes training images.

    It takes the pixels of a batch (k, c, h, w), uint8, and `cscct.data.augmentations.Draws`, its only source of random
    numbers, and returns pixels of the same shape and type. Its further arguments are options.

    Args:
        name: Name in `data.transform.augment`.
    """
    return _decorator(AUGMENTATIONS, name)


def register_herding(name: str) -> Callable[[Part], Part]:
    """Decorate a function (unit features of a class (n, d), count) that returns indices of exemplars in rank order.

    Args:
        name: Value of `memory.herding`.
    """
    return _decorator(HERDINGS, name)


def register_sampler(name: str) -> Callable[[Part], Part]:
    """Decorate a function (pool, stage, generator) that returns the batches of an epoch.

    It takes a `cscct.data.batches.Pool` of n samples, the `Stage` and a `torch.Generator`, its only source of random
    numbers, and returns the positions of the samples of each batch: int64 tensors of values from 0 to n - 1.

    Args:
        name: Value of `train.sampler` and `finetune.sampler`.
    """
    return _decorator(SAMPLERS, name)


def register_predictor(name: str) -> Callable[[Part], Part]:
    """Decorate a predictor on features: a frozen dataclass derived from `cscct.features.Predictor`.

    Args:
        name: Value of `predict.predictor`, and name in `predict.options`.
    """
    return _decorator(PREDICTORS, name)


def register_stored_target(name: str) -> Callable[[Part], Part]:
    """Decorate a function of an `Output` that returns what is stored with each exemplar, (k, n).

    Args:
        name: Value of `memory.store`.
    """
    return _decorator(STORED_TARGETS, name)


def register_weight_scaling(name: str) -> Callable[[Part], Part]:
    """Decorate a function of a `Task` that returns a factor of the weight of a loss.

    Args:
        name: Value of `loss.NAME.weight_scaling`.
    """
    return _decorator(WEIGHT_SCALINGS, name)


def _decorator(registry: Registry[Any], name: str) -> Callable[[Part], Part]:
    def add(part: Part) -> Part:
        registry.register(name)(part)
        return part

    return add
