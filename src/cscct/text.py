"""Suggestions for misspelt names in messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a misspelt one, or None if none is similar.

    Args:
        name: Name that is not known.
        known: Valid names.
    """
    matches = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` with the most similar known name, or an empty string if none is similar.

    Args:
        name: Name that is not known.
        known: Valid names.
    """
    match = closest(name, known)
    return f" (did you mean {match!r}?)" if match else ""
