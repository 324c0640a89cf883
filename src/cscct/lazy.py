"""Names and modules that are imported when they are asked for.

Importing torch takes longer than planning a hundred runs, so what only reads settings must not need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_exports(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`. home: for each public name the submodule that defines it."""

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home[name]}", package), name)
        setattr(sys.modules[package], name, value)  # asked for once
        return value

    return find


class _LazyModule(ModuleType):
    """Stands for a module and imports it when one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # lookups by debuggers and copy, not by the code
            raise AttributeError(name)
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # asked for once
        return value


def lazy_module(name: str) -> Any:
    """`torch = lazy_module("torch")`: as `import torch`, but imported at first use."""
    return _LazyModule(name)
