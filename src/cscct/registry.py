"""Named parts of one kind, to which a plugin may add its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """A mapping from names to parts. Names are known without importing anything.

    kind: what the parts are, for messages. own: the built-in parts, each as `module:name`, imported when asked for:
    settings are checked without torch, and the parts need it.
    """

    def __init__(self, kind: str, own: dict[str, str] | None = None):
        self.kind = kind
        self._places = dict(own or {})
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that adds a part under a name, which must be free."""

        def add(part: T) -> T:
            if name in self and self[name] is not part:
                raise ValueError(f"the {self.kind} {name} is already registered.")
            self[name] = part
            return part

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            module, _, attribute = self._places[name].partition(":")
            self._parts[name] = getattr(import_module(module), attribute)
        return self._parts[name]

    def __setitem__(self, name: str, part: T) -> None:
        self._parts[name] = part

    def __delitem__(self, name: str) -> None:
        self._parts.pop(name)
        self._places.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._parts})

    def __len__(self) -> int:
        return len({**self._places, **self._parts})
