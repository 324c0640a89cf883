"""The search space of tuning: ranges and choices of settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config import ABBREVIATIONS
from ..errors import UserError
from ..yamltext import parse_yaml

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

EXAMPLE = "--over loss.csc.weight=0.1:30:log or --over loss.ct.form=official,batchmean"
# Settings that define the images, the tasks or the machine: trials that differ in them are not comparable.
FIXED = ("method", "dataset", "recipe", "seed", "plugins", "protocol", "data", "runtime", "checkpoint")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
Value = str | float | bool | None
Accepts = Callable[[str, Any], object]


@dataclass(frozen=True)
class Parameter:
    """A setting that is tuned, in a range or with a list of values.

    Attributes:
        key: Dotted name of the setting.
        low: Smallest value of a range.
        high: Largest value of a range.
        log: Whether values are drawn on a logarithmic scale.
        integer: Whether values are integers.
        choices: Values of a setting without a range.
    """

    key: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    integer: bool = False
    choices: tuple[Value, ...] = ()

    def __str__(self) -> str:
        """Return the values as in `--over`."""
        if self.choices:
            return ",".join("null" if value is None else str(value) for value in self.choices)
        return f"{self.low:g}:{self.high:g}{':log' if self.log else ''}"

    def contains(self, value: Any) -> bool:
        """Return whether a value can be drawn."""
        if self.choices:
            return value in self.choices
        number = isinstance(value, int if self.integer else int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        if self.integer:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)


def parse_option(text: str) -> tuple[str, str]:
    """Divide an argument of `--over` into the key and the values.

    Raises:
        UserError: If there is no equals sign, or one side is empty.
    """
    key, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not key or not values:
        raise UserError(f"--over takes KEY=LOW:HIGH or KEY=VALUE,VALUE, for example {EXAMPLE}, not {text!r}.")
    return key, values


def search_space(over: Mapping[str, str | Sequence[Any]], accepts: Accepts) -> tuple[Parameter, ...]:
    """Return the parameters of a study.

    Args:
        over: For each setting `LOW:HIGH`, `LOW:HIGH:log` or `VALUE,VALUE`; or a tuple `(low, high)` or `(low, high,
            "log")`, or a list of values.
        accepts: Function that raises a `UserError` if a setting cannot have a value.

    Raises:
        UserError: If a range is not valid, or a setting is unknown, cannot be tuned or does not accept a value.
    """
    if not over:
        raise UserError(f"No setting is tuned: name at least one with its range, for example {EXAMPLE}.")
    parameters = []
    for name, values in over.items():
        key = ABBREVIATIONS.get(name, name)
        section, _, rest = key.partition(".")
        if section in FIXED and not rest.startswith("transform."):
            raise UserError(
                f"{key} cannot be tuned: trials that differ in it are not comparable. Set it for all of them "
                f"(--set {key}=VALUE)."
            )
        parameter = _parse(key, values)
        for value in parameter.choices or (_plain(parameter.low), _plain(parameter.high)):
            try:
                accepts(key, value)
            except UserError as error:
                raise UserError(f"{key}={parameter}: {error}") from error
        parameters.append(parameter if parameter.choices else _typed(parameter, accepts))
    return tuple(parameters)


def _parse(key: str, values: str | Sequence[Any]) -> Parameter:
    """Return a parameter whose range has no type yet."""
    if isinstance(values, tuple):
        values = ":".join(map(str, values))
    if isinstance(values, str) and ":" in values:
        return _range(key, values)
    parsed = [_scalar(key, part) for part in values.split(",")] if isinstance(values, str) else list(values)
    if any(not isinstance(value, str | int | float | None) for value in parsed):
        raise UserError(f"{key}: the values of a tuned setting must be numbers, names, booleans or null.")
    if len(parsed) < 2 or len(set(map(repr, parsed))) < len(parsed):
        raise UserError(f"{key}={values}: at least two different values are needed, for example {EXAMPLE}.")
    return Parameter(key, choices=tuple(parsed))


def _scalar(key: str, text: str) -> Any:
    if not text.strip():
        raise UserError(f"{key}: a value between the commas is missing.")
    return parse_yaml(f"value: {text}", f"The value of {key}")["value"]


def _range(key: str, text: str) -> Parameter:
    low_text, high_text, *scale = (part.strip() for part in text.split(":"))
    if not all(NUMBER.fullmatch(part) for part in (low_text, high_text)) or scale not in ([], ["log"]):
        raise UserError(f"{key}={text} is not a range: use LOW:HIGH or LOW:HIGH:log, for example {EXAMPLE}.")
    low, high, log = float(low_text), float(high_text), bool(scale)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"{key}={text}: the ends of a range must be finite.")
    if low >= high:
        raise UserError(f"{key}={text}: the first number must be smaller than the second, as in {high:g}:{low:g}.")
    if log and low <= 0:
        raise UserError(f"{key}={text}: a logarithmic range needs positive numbers; omit :log, or start above 0.")
    return Parameter(key, low, high, log)


def _plain(number: float) -> float:
    """Return a whole number as an integer: settings with integers accept no other."""
    return int(number) if number.is_integer() else number


def _typed(parameter: Parameter, accepts: Accepts) -> Parameter:
    """Return the parameter with integers, if the setting accepts the whole ends of the range but no number between
    them."""
    if not (parameter.low.is_integer() and parameter.high.is_integer()):
        return parameter
    try:
        accepts(parameter.key, parameter.low + 0.5)
    except UserError:
        return Parameter(parameter.key, parameter.low, parameter.high, parameter.log, integer=True)
    return parameter
