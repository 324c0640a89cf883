"""Registries of named parts, which plugins can extend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """A mapping from names to parts. Names are known without importing anything.

    Args:
        kind: What the parts are, for messages.
        built_in: Built-in parts as `module:name`. They are imported at first use, because most of them need torch.
        summaries: A line about each built-in part that is listed.
    """

    def __init__(self, kind: str, built_in: dict[str, str] | None = None, summaries: dict[str, str] | None = None):
        self.kind = kind
        self._places = dict(built_in or {})
        self._summaries = dict(summaries or {})
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a part under a name, which must be free."""

        def add(part: T) -> T:
            if name in self and self[name] is not part:
                raise ValueError(f"the {self.kind} {name} is already registered.")
            self[name] = part
            return part

        return add

    def module_of(self, name: str) -> str | None:
        """Return the module that defines a part, or None if the part is built in or unknown. Nothing is imported."""
        part = self._parts.get(name)
        return None if part is None or name in self._places else getattr(part, "__module__", None)

    def summary(self, name: str) -> str:
        """Return a line about a part: its stored summary, or the first line of its docstring.

        A part with a stored summary is not imported.
        """
        return self._summaries[name] if name in self._summaries else first_line(self[name].__doc__)

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            module, _, attribute = self._places[name].partition(":")
            self._parts[name] = getattr(import_module(module), attribute)
        return self._parts[name]

    def __setitem__(self, name: str, part: T) -> None:
        self._parts[name] = part
        self._summaries.pop(name, None)  # of the part that this one replaces

    def __delitem__(self, name: str) -> None:
        self._parts.pop(name)
        self._places.pop(name, None)
        self._summaries.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._parts})

    def __len__(self) -> int:
        return len({**self._places, **self._parts})


def first_line(text: str | None) -> str:
    """Return the first line of a docstring; empty for None."""
    return (text or "").strip().partition("\n")[0]
