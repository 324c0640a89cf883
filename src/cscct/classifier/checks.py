"""The settings of a classifier, checked when it is used: `__init__` only stores them."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..predictors import PREDICTORS

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

_NUMBERS: dict[str, tuple[Any, int]] = {  # settings that are numbers: their types, and from where on
    "memory_per_class": (Integral, 0),
    "memory_mb": (Real, 0),
    "image_size": (Integral | None, 1),
    "batch_size": (Integral, 1),
    "random_state": (Integral, 0),
}


def check_settings(model: IncrementalClassifier) -> None:
    """Raises a sentence for the first setting that cannot be used."""
    if model.predictor not in PREDICTORS:
        raise UserError(f"predictor must be {', '.join(PREDICTORS)}, not {model.predictor!r}.")
    if model.finetune not in ("never", "auto", "always"):
        raise UserError(f"finetune must be never, auto or always, not {model.finetune!r}.")
    if model.finetune != "never" and model.backbone is None:
        raise UserError("finetune must be never where X are features: there is no network to train.")
    for name, (kinds, low) in _NUMBERS.items():
        value = getattr(model, name)
        if not isinstance(value, kinds) or (value is not None and not low <= value < inf):
            raise UserError(f"{name} must be a number from {low} on, not {value!r}.")
