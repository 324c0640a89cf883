"""Shell completion of built-in names. Plugins are not loaded."""

from __future__ import annotations


def methods(incomplete: str) -> list[str]:
    """Complete the name of a method."""
    from ..methods import ADDONS, METHODS

    names = [name + suffix for name in METHODS for suffix in ("", *(f"+{addon}" for addon in ADDONS))]
    return [name for name in names if name.startswith(incomplete)]


def datasets(incomplete: str) -> list[str]:
    """Complete the name of a dataset."""
    from ..data.registry import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


def keys(incomplete: str) -> list[str]:
    """Complete the name of a setting for `--set`."""
    from ..config import known_keys

    names = known_keys()
    sections = {name.rpartition(".")[0] for name in names}
    return [f"{name}=" for name in names if name not in sections and name.startswith(incomplete)]
