"""The agreed values are a checklist: each is compared with somewhere, or stands here with the reason why not."""

import ast
from pathlib import Path

import pytest

import oracles
from oracles import leaves, vector

# Other projects' ways to report, which are not offered.
NOT_OURS = {
    "metrics/avg_without_first",
    "metrics/lucir_class_weighted_avg",
    "metrics/podnet_forgetting/accuracies",
    "metrics/podnet_forgetting/value",
}
NOTES = {path for path in leaves() if path.endswith("/note")}


def mentioned() -> set[str]:
    """Every string in the tests, this file left out."""
    strings: set[str] = set()
    for file in Path(oracles.__file__).parent.rglob("test_*.py"):
        if file != Path(__file__):
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            strings |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return strings


def test_every_vector_is_used() -> None:
    every, used = set(leaves()), mentioned()
    assert len(every) == 125
    assert every >= NOT_OURS
    assert len(NOTES) == 6
    assert not NOT_OURS & used
    assert sorted(every - used - NOT_OURS - NOTES) == []


def test_vector_names_one_value() -> None:
    assert vector("ct/T") == 2.0
    for wrong in ("ct", "ct/abs_inputs", "ct/unknown"):
        with pytest.raises(KeyError):
            vector(wrong)
