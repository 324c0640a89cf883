"""Packages whose names are imported when they are asked for.

Importing torch takes longer than planning a hundred runs, so what only reads settings must not need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`. home: for each public name the submodule that defines it."""

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home[name]}", package), name)
        setattr(sys.modules[package], name, value)  # asked for once
        return value

    return find
