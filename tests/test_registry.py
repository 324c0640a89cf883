"""Registries: names without imports, and registration by plugins."""

import subprocess
import sys

import pytest

from cscct.registry import Registry


def test_built_in_parts_are_imported_when_asked_for() -> None:
    registry: Registry[object] = Registry("thing", {"pi": "math:pi", "absent": "no_such_module:x"})
    assert list(registry) == ["pi", "absent"]
    assert "absent" in registry
    assert len(registry) == 2
    assert registry["pi"] == pytest.approx(3.14159, abs=1e-5)
    with pytest.raises(KeyError):
        registry["tau"]


def test_parts_are_added_once() -> None:
    registry: Registry[object] = Registry("thing", {"pi": "math:pi"})
    first = object()
    assert registry.register("mine")(first) is first
    assert registry.register("mine")(first) is first
    assert list(registry) == ["pi", "mine"]
    for taken in ("mine", "pi"):
        with pytest.raises(ValueError, match=f"the thing {taken} is already registered"):
            registry.register(taken)(object())
    registry["pi"] = 3
    assert registry["pi"] == 3
    del registry["mine"]
    assert dict(registry) == {"pi": 3}


def test_summaries_are_known_without_an_import() -> None:
    registry: Registry[object] = Registry("thing", {"absent": "no_such_module:x"}, summaries={"absent": "not here"})
    assert registry.summary("absent") == "not here"

    @registry.register("mine")
    def part() -> None:
        """First line.

        Second line.
        """

    assert registry.summary("mine") == "First line."
    registry["absent"] = part  # replaced by a plugin: the summary is that of the new part
    assert registry.summary("absent") == "First line."


def test_names_are_checked_without_torch() -> None:
    code = """
import sys
from cscct.config import resolve
from cscct.yamltext import parse_override
words = ["network.head=linear", "network.imprint=none", "memory.herding=icarl", "train.optimizer=RMSprop"]
words += ["train.optimizer_options={alpha: 0.9, centered: true}"]
for method in ("lucir", "wa", "bic+cscct", "er-ace", "der+++cscct"):
    resolve(method, "cifar100", overrides=[parse_override(word) for word in words])
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
