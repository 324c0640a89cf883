"""A method is data: a name, and the settings that make a learner behave like it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import UserError

EXTRAS: dict[str, tuple[str, ...]] = {
    "csc": ("csc",),
    "ct": ("ct",),
    "cscct": ("csc", "ct"),
}  # suffix -> loss terms


@dataclass(frozen=True)
class Method:
    """`settings` are differences from the defaults. `like` names the method whose recipe in the presets (optimiser,
    schedule, transforms) this one shares; by default its own."""

    name: str
    summary: str
    settings: Mapping[str, Any]
    like: str = ""

    @property
    def preset_name(self) -> str:
        return self.like or self.name


METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    if "+" in method.name or (method.name in METHODS and METHODS[method.name] != method):
        raise ValueError(f"the method name {method.name} is taken, or holds a plus sign.")
    METHODS[method.name] = method
    return method


def parse_method(text: str) -> tuple[Method, tuple[str, ...]]:
    """`lucir+cscct` -> the method and the names of the loss terms to be added."""
    name, *suffixes = text.split("+")
    if name not in METHODS:
        raise UserError(f"There is no method {name!r}{suggest(name, METHODS)}; `cscct list` shows them all.")
    terms: list[str] = []
    for suffix in suffixes:
        if suffix not in EXTRAS:
            raise UserError(f"There is no addition +{suffix}{suggest(suffix, EXTRAS)}; there are +csc, +ct and +cscct.")
        terms += [term for term in EXTRAS[suffix] if term not in terms]
    return METHODS[name], tuple(terms)


def canonical_name(text: str) -> str:
    """One spelling for each combination: `lucir+csc+ct` is `lucir+cscct`."""
    method, terms = parse_method(text)
    suffix = next((suffix for suffix, wanted in EXTRAS.items() if set(wanted) == set(terms)), None)
    return f"{method.name}+{suffix}" if suffix else method.name


def suggest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
