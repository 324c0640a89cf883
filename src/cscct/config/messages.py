"""Validation errors as messages that name the setting and the nearest valid one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from ..text import suggest


def explain(error: ValidationError, known: Sequence[str], prefix: tuple[str | int, ...] = ()) -> list[str]:
    """Turn validation errors into messages with the full names of the settings.

    Args:
        error: Error of pydantic.
        known: Names of all settings, for suggestions.
        prefix: Section that the error is relative to.

    Returns:
        Messages without duplicates.
    """
    sentences = []
    for finding in error.errors():
        place = (*prefix, *(part for part in finding["loc"] if not is_union_branch(part)))
        path = ".".join(str(part) for part in place)
        message = str(finding["msg"]).removeprefix("Value error, ")
        if finding["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            sentences.append(f"there is no setting {path}{suggest(path, known)}")
        elif finding["type"] == "missing":
            sentences.append(f"{path} is missing")
        elif finding["type"] == "value_error" and len(place) == 1:  # names the setting itself
            sentences.append(message)
        else:
            sentences.append(f"{path} is {finding['input']!r}: {message[0].lower()}{message[1:]}")
    return list(dict.fromkeys(sentences))


def is_union_branch(part: str | int) -> bool:
    """Return whether a part of the location of an error names a member of a union type and not a setting."""
    return isinstance(part, str) and (part in ("str", "int", "Finetune") or part.startswith(("tuple[", "constrained")))
