"""A method is data: a name, and the settings that define it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..registry import Registry
from ..text import suggest
from .extension import TaskContext

ADDONS: dict[str, tuple[str, ...]] = {
    "csc": ("csc",),
    "ct": ("ct",),
    "cscct": ("csc", "ct"),
    "balanced": ("balanced_cross_entropy",),
    "cwd": ("class_decorrelation",),
}  # suffix -> loss terms; plugins may add to it


@dataclass(frozen=True)
class Method:
    """A method: its name and the settings that define it.

    Attributes:
        name: Name in commands and settings.
        summary: One line for `cscct list`.
        settings: Differences from the default settings.
        preset_from: Name of the method whose entry in the dataset presets (backbone, optimizer, schedule, transforms)
            this method shares, for what it does not set itself. Default: its own.
        addon_settings: Settings of the losses of add-ons such as `+csc` that differ from the defaults, by loss.
        addon_predictors: Predictor that the method is evaluated with when a loss is added, by loss. Default: the
            method's own.
        family: Group of methods that `cscct list` shows it in.
    """

    name: str
    summary: str
    settings: Mapping[str, Any]
    preset_from: str = ""
    addon_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    addon_predictors: Mapping[str, str] = field(default_factory=dict)
    family: str = "other"

    @property
    def trains(self) -> bool:
        """Whether the network is trained."""
        return bool(self.settings.get("network", {}).get("train_backbone", True))

    @property
    def grows(self) -> bool:
        """Whether the backbone grows, so that losses that compare features with the teacher's do not apply."""
        return bool(self.settings.get("network", {}).get("expand", "none") != "none")

    @property
    def preset_name(self) -> str:
        """Name of the entry under `bases` in the presets."""
        return self.preset_from or self.name


METHODS: dict[str, Method] = {}
AFTER_TASK: Registry[Callable[[TaskContext], None]] = Registry("function after a task")  # values of network.after_task


def register(method: Method) -> Method:
    """Register a method under its name.

    Args:
        method: The method. Its name may end in plus signs, as in `der++`; others separate add-ons.

    Returns:
        The same method.

    Raises:
        ValueError: If the name is taken by a different method, or has a plus sign before its end.
    """
    if "+" in method.name.rstrip("+") or (method.name in METHODS and METHODS[method.name] != method):
        raise ValueError(f"the method name {method.name} is taken, or has a plus sign before its end.")
    METHODS[method.name] = method
    return method


def split_method(text: str) -> tuple[str, tuple[str, ...]]:
    """Split a name into base and add-ons: `lucir+csc+ct` -> `lucir` and (`csc`, `ct`); `der+++cscct` -> `der++` and
    (`cscct`,). The base need not be a known method."""
    addons: list[str] = []
    while (addon := next((name for name in ADDONS if text.endswith(f"+{name}")), None)) is not None:
        text = text.removesuffix(f"+{addon}")
        addons.insert(0, addon)
    return text, tuple(addons)


def parse_method(text: str) -> tuple[Method, tuple[str, ...]]:
    """Find the method of a name such as `lucir+cscct`.

    Returns:
        The method, and the names of the loss terms that the add-ons add.

    Raises:
        UserError: If the method or an add-on is unknown, or if an add-on is given to a method that trains nothing.
    """
    name, addons = split_method(text)
    if name not in METHODS:
        base, _, suffix = name.partition("+")
        if base in METHODS:
            addons_known = [f"+{addon}" for addon in ADDONS]
            hint = (suffix and suggest(f"+{suffix}", addons_known)) or suggest(name, METHODS)
            raise UserError(f"There is no add-on +{suffix}{hint}; the add-ons are {', '.join(addons_known)}.")
        raise UserError(f"There is no method {name!r}{suggest(name, METHODS)}; `cscct list` shows all methods.")
    if addons and not METHODS[name].trains:
        raise UserError(
            f"{name} trains nothing, so +{addons[0]} has nothing to act on: use {name} alone, or add +{addons[0]} to a "
            f"method that trains, as in lucir+{addons[0]}."
        )
    return METHODS[name], tuple(dict.fromkeys(term for addon in addons for term in ADDONS[addon]))


def canonical_name(text: str) -> str:
    """Return the one spelling of a combination: `lucir+csc+ct` is `lucir+cscct`."""
    method, terms = parse_method(text)
    combined = [addon for addon, added in ADDONS.items() if set(added) == set(terms)][:1]
    return "+".join([method.name, *(combined or dict.fromkeys(split_method(text)[1]))])


def foreign_terms(text: str) -> set[str]:
    """Return the loss terms of add-ons that a method has neither through an add-on nor in its own settings."""
    method, added = parse_method(text)
    return {term for terms in ADDONS.values() for term in terms} - {*added, *method.settings.get("loss", {})}
