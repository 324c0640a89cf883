"""JSON that other programs can read."""

from __future__ import annotations

import json
import math

import pytest

from cscct.jsontext import parse_json, to_json


def test_output_is_valid_json() -> None:
    values = {"a": [1.5, math.nan, (math.inf, "ü")], "b": {"c": -math.inf}, "d": None}
    expected = {"a": [1.5, None, [None, "ü"]], "b": {"c": None}, "d": None}
    for text in (to_json(values), to_json(values, 1), to_json(values, ascii_only=False)):
        assert json.loads(text, parse_constant=pytest.fail) == expected
    assert to_json({"a": 1}, 1) == json.dumps({"a": 1}, indent=1)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": 1e999}', "-Infinity", "{", "[" * 100_000, "1" * 5000])
def test_invalid_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    assert parse_json(b'{"a": [1, 2.5]}') == {"a": [1, 2.5]}
