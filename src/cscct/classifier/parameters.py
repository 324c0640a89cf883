"""Validation of the parameters of `IncrementalClassifier`, which `__init__` only stores."""

from __future__ import annotations

import warnings
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ..config.schema import build_predictor
from ..errors import UserError
from ..features import PREDICTORS, Predictor
from ..methods import METHODS, parse_method
from ..text import suggest

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

AUTO = "auto"
DEFAULT_TRAINED = "lucir+cscct"  # what `auto` compares with a training-free predictor
_NUMBERS: dict[str, tuple[Any, int]] = {  # numeric parameters: type and lower limit
    "memory_per_class": (Integral, 0),
    "memory_mb": (Real, 0),
    "image_size": (Integral | None, 1),
    "batch_size": (Integral, 1),
    "random_state": (Integral, 0),
}


def training_free_predictor(method: str) -> Predictor | None:
    """Return the predictor of a training-free method; None for a method that trains, and for `auto`.

    The name of a registered predictor is that of a method, too.
    """
    known = METHODS.get(method)
    if known is None or known.trains:
        return build_predictor(method) if known is None and method in PREDICTORS else None
    predict = known.settings.get("predict", {})
    name = str(predict.get("predictor", "nme"))
    options = predict.get("options", {}).get(name)
    return build_predictor("ncm" if name == "nme" else name, options)


def training_free_names() -> list[str]:
    """Return the names of all training-free methods."""
    names = dict.fromkeys([*PREDICTORS, *METHODS])
    return [name for name in names if training_free_predictor(name) is not None]


def check_parameters(model: IncrementalClassifier) -> None:
    """Check the parameters of a model.

    Raises:
        UserError: A parameter has an invalid value; the message names the parameter and the valid values.
    """
    if model.finetune not in (None, "never", AUTO, "always"):
        raise UserError(f"finetune must be never, auto or always, not {model.finetune!r}.")
    if model.predictor is not None and not (isinstance(model.predictor, str) and model.predictor in PREDICTORS):
        raise UserError(f"predictor must be {', '.join(PREDICTORS)}, not {model.predictor!r}.")
    if not isinstance(model.method, str):
        raise UserError(f"method must be the name of a method, not {model.method!r}.")
    check_method(model.method)
    method = resolve_method(model, warn=True)
    if training_free_predictor(method) is None and model.backbone is None:
        raise UserError(
            f"method must be one of {', '.join(training_free_names())} if X are features (backbone=None): there is no "
            "network to train."
        )
    for name, (kinds, low) in _NUMBERS.items():
        value = getattr(model, name)
        if not isinstance(value, kinds) or (value is not None and not low <= value < inf):
            raise UserError(f"{name} must be a number of at least {low}, not {value!r}.")


def check_method(method: str) -> None:
    """Check the name of a method.

    Raises:
        UserError: There is no method of this name.
    """
    names = [AUTO, *METHODS, *PREDICTORS]
    if "+" not in method.rstrip("+") and method not in names:
        raise UserError(f"There is no method {method!r}{suggest(method, names)}; `cscct list` shows all methods.")
    if method != AUTO and training_free_predictor(method) is None:
        parse_method(method)


def resolve_method(model: IncrementalClassifier, *, warn: bool = False) -> str:
    """Return the method of a model, with the deprecated parameters `finetune` and `predictor` taken into account.

    Args:
        model: The model.
        warn: Whether to warn about deprecated parameters and say what to write.
    """
    method = model.method
    if model.finetune in (AUTO, "always"):
        trained = DEFAULT_TRAINED if training_free_predictor(method) else method
        method = AUTO if model.finetune == AUTO else trained
    elif model.finetune == "never" or (model.predictor is not None and training_free_predictor(method)):
        method = model.predictor or (method if training_free_predictor(method) else "lda")
    if warn:
        deprecated = [name for name in ("finetune", "predictor") if getattr(model, name) is not None]
        if deprecated:
            written = ", ".join(f"{name}={getattr(model, name)!r}" for name in deprecated)
            warnings.warn(f"{written} is deprecated: write method={method!r}.", FutureWarning, stacklevel=4)
    return method
