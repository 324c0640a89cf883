"""JSON without NaN and infinity, which Python writes and reads although other programs cannot."""

from __future__ import annotations

import json
import math
from typing import Any


def to_json(value: Any, indent: int | None = None, *, ascii_only: bool = True) -> str:
    """Return a value as valid JSON. NaN and infinite numbers become null.

    Args:
        value: What `json.dumps` accepts.
        indent: Indentation; None for a single line.
        ascii_only: Whether other characters are escaped.
    """
    try:
        return json.dumps(value, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:  # rare, so values are only copied if necessary
        return json.dumps(_finite(value), indent=indent, ensure_ascii=ascii_only, allow_nan=False)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: If it is not valid JSON, or contains a number that is not finite.
    """
    try:
        return json.loads(text, parse_float=_parse_float, parse_constant=_parse_float)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
