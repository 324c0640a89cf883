"""Names and options of augmentations, known without importing torch.

`data.transform.augment` is a list of names or of `{name: options}`. An augmentation is a function of pixels and
`Draws`. Its further arguments are options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from ..registry import Registry

AUGMENTATIONS: Registry[Callable[..., Any]] = Registry(
    "augmentation",
    {name: f"cscct.data.augmentations:{name}" for name in ("cutout", "autoaugment", "randaugment", "mixup")},
)
MIXUP = "mixup"  # changes labels, too, so it is applied to batches and not to pixels


def complete_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the options of an augmentation and add the defaults of the others.

    Args:
        name: Name of a registered augmentation.
        options: Values by name.

    Raises:
        pydantic.ValidationError: If an option is unknown, missing or invalid.
    """
    model = _options_model(name)
    return model.model_validate(dict(options)).model_dump()


def option_names(name: str) -> list[str]:
    """Return the names of the options of an augmentation."""
    return list(_options_model(name).model_fields)


def _options_model(name: str) -> type[BaseModel]:
    """The arguments of an augmentation after the first two, with their types and defaults."""
    function = AUGMENTATIONS[name]
    try:
        types = get_type_hints(function, include_extras=True)
    except NameError:  # annotations that are imported for type checkers only
        types = {}
    arguments = list(inspect.signature(function).parameters.values())[2:]
    fields: dict[str, Any] = {
        argument.name: (
            types.get(argument.name, Any),
            ... if argument.default is inspect.Parameter.empty else argument.default,
        )
        for argument in arguments
    }
    return create_model(name, __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **fields)
