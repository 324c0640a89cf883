"""Optimisers by name: the classes of `torch.optim`, and optimisers that plugins register.

The names are known without importing torch. A checkpoint holds the `state_dict` of an optimiser as JSON and tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .lazy import lazy_module
from .registry import Registry
from .specs import Stage

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer
else:
    torch = lazy_module("torch")

OptimizerFactory = Callable[..., "Optimizer"]  # an optimiser class, or a function with the arguments of one

TORCH_OPTIMIZERS = (
    "SGD",
    "AdamW",
    "Adam",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adamax",
    "ASGD",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
)
OPTIMIZERS: Registry[OptimizerFactory] = Registry(
    "optimizer", {name.lower(): f"torch.optim:{name}" for name in TORCH_OPTIMIZERS}
)
UNSUPPORTED = {  # classes of torch.optim that cannot train a network, and why
    "lbfgs": "it evaluates the loss several times per step",
    "muon": "it accepts weight matrices only",
    "sparseadam": "it accepts sparse gradients only",
}
STAGE_OPTIONS = ("lr", "momentum", "weight_decay")  # settings of a stage, passed to optimisers that accept them


def register_optimizer(name: str) -> Callable[[OptimizerFactory], OptimizerFactory]:
    """Return a decorator that registers an optimiser for `train.optimizer` and `finetune.optimizer`.

    Args:
        name: The name in the settings; upper and lower case are equivalent.

    Returns:
        A decorator for a subclass of `torch.optim.Optimizer`, or for a function that takes the parameters to train and
        keyword arguments and returns an optimiser. `lr`, `momentum` and `weight_decay` are passed if it accepts them;
        `optimizer_options` sets its other arguments.
    """
    return OPTIMIZERS.register(name.lower())


def option_names(name: str) -> list[str]:
    """Return the names that `optimizer_options` may have for a registered optimiser."""
    return [argument for argument in _arguments(name) if argument not in STAGE_OPTIONS]


def build_optimizer(parameters: Iterable[nn.Parameter], stage: Stage) -> Optimizer:
    """Build the optimiser of a stage.

    Args:
        parameters: The parameters to train.
        stage: Names the optimiser and its options.
    """
    shared = {name: getattr(stage, name) for name in STAGE_OPTIONS if name in _arguments(stage.optimizer)}
    return OPTIMIZERS[stage.optimizer](parameters, **shared, **stage.optimizer_options)


def pack_state(value: Any, tensors: dict[str, Tensor], name: str = "optimizer") -> Any:
    """Convert the `state_dict` of an optimiser to JSON values and tensors.

    Args:
        value: The `state_dict`, or a value in it.
        tensors: Receives each tensor, under a name that starts with `name`.
        name: The name of the value.

    Returns:
        A JSON value with the names and strides of the tensors, for `unpack_state`.

    Raises:
        TypeError: If a value is neither a tensor, a number, a string, a boolean nor None, nor a list, tuple or
            dictionary of these.
    """
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return {"tensor": name, "stride": torch.empty_like(value, device="meta").stride()}
    if isinstance(value, dict) and all(isinstance(key, int | str) for key in value):  # JSON has no integer keys
        return {"dict": [[key, pack_state(item, tensors, f"{name}.{key}")] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [pack_state(item, tensors, f"{name}.{i}") for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} is of type {type(value).__name__}, which a checkpoint cannot hold")


def unpack_state(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Restore the `state_dict` that `pack_state` converted.

    Args:
        value: The JSON value.
        tensors: The tensors by name. Their strides may differ from the original ones, which are restored.
    """
    if isinstance(value, list):
        return [unpack_state(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(unpack_state(value["tuple"], tensors))
    if "dict" in value:
        return {key: unpack_state(item, tensors) for key, item in value["dict"]}
    tensor = tensors[value["tensor"]]
    return torch.empty_strided(tensor.shape, value["stride"], dtype=tensor.dtype).copy_(tensor)


def _arguments(name: str) -> list[str]:
    """Return the names of the arguments of an optimiser, without the parameters to train."""
    return list(inspect.signature(OPTIMIZERS[name]).parameters)[1:]
