"""Words that the shell can complete: names that come with the package. Plugins are not loaded for it."""

from __future__ import annotations


def methods(incomplete: str) -> list[str]:
    """Names of methods."""
    from ..methods import EXTRAS, METHODS

    names = [name + suffix for name in METHODS for suffix in ("", *(f"+{extra}" for extra in EXTRAS))]
    return [name for name in names if name.startswith(incomplete)]


def datasets(incomplete: str) -> list[str]:
    """Names of datasets."""
    from ..data.registry import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


def keys(incomplete: str) -> list[str]:
    """Settings that `--set` can change."""
    from ..config import known_keys

    names = known_keys()
    sections = {name.rpartition(".")[0] for name in names}
    return [f"{name}=" for name in names if name not in sections and name.startswith(incomplete)]
