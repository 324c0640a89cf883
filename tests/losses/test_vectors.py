"""Every reference value in vectors.json is used by a test or listed below as unused."""

import ast
from pathlib import Path

import pytest

import oracles
from oracles import leaves, vector

# Metrics of other projects, which the package does not compute.
UNUSED = {
    "metrics/avg_without_first",
    "metrics/lucir_class_weighted_avg",
    "metrics/podnet_forgetting/accuracies",
    "metrics/podnet_forgetting/value",
}
NOTES = {path for path in leaves() if path.endswith("/note")}


def strings_in_tests() -> set[str]:
    """Every string in the tests except this file."""
    strings: set[str] = set()
    for file in Path(oracles.__file__).parent.rglob("test_*.py"):
        if file != Path(__file__):
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            strings |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return strings


def test_every_vector_is_used() -> None:
    every, used = set(leaves()), strings_in_tests()
    assert len(every) == 125
    assert every >= UNUSED
    assert len(NOTES) == 6
    assert not UNUSED & used
    assert sorted(every - used - UNUSED - NOTES) == []


def test_vector_needs_the_path_of_a_value() -> None:
    assert vector("ct/T") == 2.0
    for path in ("ct", "ct/abs_inputs", "ct/unknown"):
        with pytest.raises(KeyError):
            vector(path)
