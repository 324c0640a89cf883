"""A method is data: a name, and the settings that make a learner behave like it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..registry import Registry
from ..structs import Task

if TYPE_CHECKING:
    from torch import Tensor

    from ..nets import Network

EXTRAS: dict[str, tuple[str, ...]] = {
    "csc": ("csc",),
    "ct": ("ct",),
    "cscct": ("csc", "ct"),
    "balanced": ("balanced_cross_entropy",),
}  # suffix -> loss terms; plugins may add to it


@dataclass(frozen=True)
class Method:
    """`settings` are differences from the defaults. `like` names the method whose recipe in the presets (optimiser,
    schedule, transforms) this one shares; by default its own. `additions` are settings of the losses that `+csc` and
    others bring, where this method wants others than the defaults; `headlines` the prediction that it is tested by with
    such a loss, where that is another one."""

    name: str
    summary: str
    settings: Mapping[str, Any]
    like: str = ""
    additions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    headlines: Mapping[str, str] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Whether the network learns; else it stays as it is at the start."""
        return bool(self.settings.get("network", {}).get("trained", True))

    @property
    def preset_name(self) -> str:
        """The entry under `bases` in the presets."""
        return self.like or self.name


@dataclass(frozen=True)
class TaskEnd:
    """What a function in `AFTER_TASK` may use once a task has been learned. It may change the head in place."""

    network: Network
    task: Task
    # Logits (n, classes seen) and labels of the images held back from training (`memory.held_back`), with the network
    # as it is when this is called; equally many of each class seen.
    held_back: Callable[[], tuple[Tensor, Tensor]]


METHODS: dict[str, Method] = {}
AFTER_TASK: Registry[Callable[[TaskEnd], None]] = Registry("function after a task")  # values of network.after_task


def register(method: Method) -> Method:
    """Make a method known by its name. Plus signs may only end it, as in `der++`: others begin an addition."""
    if "+" in method.name.rstrip("+") or (method.name in METHODS and METHODS[method.name] != method):
        raise ValueError(f"the method name {method.name} is taken, or holds a plus sign before its end.")
    METHODS[method.name] = method
    return method


def split_method(text: str) -> tuple[str, tuple[str, ...]]:
    """Base and additions of a name: `lucir+csc+ct` -> `lucir` and (`csc`, `ct`); `der+++cscct` -> `der++` and
    (`cscct`,). The base need not be a known method."""
    additions: list[str] = []
    while (found := next((one for one in EXTRAS if text.endswith(f"+{one}")), None)) is not None:
        text = text.removesuffix(f"+{found}")
        additions.insert(0, found)
    return text, tuple(additions)


def parse_method(text: str) -> tuple[Method, tuple[str, ...]]:
    """`lucir+cscct` -> the method and the names of the loss terms to be added."""
    name, additions = split_method(text)
    if name not in METHODS:
        base, _, suffix = name.partition("+")
        if base in METHODS:
            known = " and ".join(", ".join(f"+{one}" for one in EXTRAS).rsplit(", ", 1))
            raise UserError(f"There is no addition +{suffix}{suggest(suffix, EXTRAS)}; there are {known}.")
        raise UserError(f"There is no method {name!r}{suggest(name, METHODS)}; `cscct list` shows them all.")
    if additions and not METHODS[name].trains:
        raise UserError(
            f"{name} trains nothing, so +{additions[0]} has nothing to act on: name {name} alone, or add "
            f"+{additions[0]} to a method that trains, as in lucir+{additions[0]}."
        )
    return METHODS[name], tuple(dict.fromkeys(term for addition in additions for term in EXTRAS[addition]))


def canonical_name(text: str) -> str:
    """One spelling for each combination: `lucir+csc+ct` is `lucir+cscct`."""
    method, terms = parse_method(text)
    one = [suffix for suffix, wanted in EXTRAS.items() if set(wanted) == set(terms)][:1]
    return "+".join([method.name, *(one or dict.fromkeys(split_method(text)[1]))])


def foreign_terms(text: str) -> set[str]:
    """The loss terms that additions bring to other methods, and that this one has neither by an addition nor itself."""
    method, added = parse_method(text)
    return {term for terms in EXTRAS.values() for term in terms} - {*added, *method.settings.get("loss", {})}


def suggest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, or nothing."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
