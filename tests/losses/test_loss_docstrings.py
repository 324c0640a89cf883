"""Docstrings of `cscct.losses`: every public name is documented, and every example runs."""

import doctest
import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest

from cscct import losses

CLASSES = [losses.ControlledTransfer, losses.CrossSpaceClustering, losses.Term, losses.WeightedSum]
FUNCTIONS = [
    value
    for value in vars(losses).values()
    if inspect.isfunction(value) and value.__module__.startswith("cscct.losses.")
]


def doctests() -> list[doctest.DocTest]:
    """The docstrings of the package that have examples."""
    modules = [import_module(f"cscct.losses.{module.name}") for module in iter_modules(losses.__path__)]
    assert len(modules) > 10
    return [test for module in modules for test in doctest.DocTestFinder().find(module) if test.examples]


def test_functions_and_classes_have_examples() -> None:
    assert len(FUNCTIONS) == 19
    expected = {value.__name__ for value in [*FUNCTIONS, *CLASSES]} - {"register"}  # it would change the registry
    assert {test.name.rpartition(".")[2] for test in doctests()} == expected


@pytest.mark.parametrize("test", doctests(), ids=lambda test: test.name)
def test_examples_run(test: doctest.DocTest) -> None:
    output: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert results.attempted == len(test.examples)
    assert results.failed == 0, "".join(output)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_constructor_arguments_are_documented(cls: type) -> None:
    doc = inspect.getdoc(cls) or ""
    for name in inspect.signature(cls).parameters:
        assert f"    {name}: " in doc, name
