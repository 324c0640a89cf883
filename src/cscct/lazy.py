"""Lazy imports of names and modules.

Importing torch takes longer than planning a hundred runs, so modules that only read settings must not import it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_exports(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose public names are imported at first use.

    Args:
        package: Name of the package.
        home: For each public name the submodule that defines it.
    """

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home[name]}", package), name)
        setattr(sys.modules[package], name, value)  # the next access does not call this function
        return value

    return find


class _LazyModule(ModuleType):
    """Proxy of a module that imports it at the first access to an attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # introspection, for example by debuggers and copy
            raise AttributeError(name)
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # the next access does not call this method
        return value


def lazy_module(name: str) -> Any:
    """Return a proxy that imports a module at first use: `torch = lazy_module("torch")`.

    Args:
        name: Name of the module.
    """
    return _LazyModule(name)
