"""Every public name has a docstring that describes its arguments and its result."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import cscct
from cscct import losses
from cscct.data.augment import View
from cscct.features import ClassStatistics, LinearPredictor
from cscct.nets import Head
from cscct.structs import Batch, Output, Step, Task

LOSSES = [loss for loss in vars(losses).values() if inspect.isfunction(loss) and "cscct.losses." in loss.__module__]
MODULES = (losses.ControlledTransfer, losses.CrossSpaceClustering, losses.Term, losses.WeightedSum)
EXTENSION_API = (Batch, ClassStatistics, Head, LinearPredictor, Output, Step, Task, View, *MODULES, *LOSSES)


def public_names() -> dict[str, Any]:
    names = {f"cscct.{name}": getattr(cscct, name) for name in cscct.__all__}
    return names | {f"cscct.{kind.__name__}": kind for kind in EXTENSION_API}


def callables() -> Iterator[tuple[str, Any]]:
    """Public functions, and the methods that public classes of this package define."""
    for name, value in public_names().items():
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                in_package = function.__module__.startswith("cscct") and method in dir(value)
                if in_package and not method.startswith("_"):
                    yield f"{name}.{method}", function


CALLABLES = dict(callables())


def test_number_of_names() -> None:
    assert len(public_names()) > 30
    assert len(CALLABLES) > 50
    assert "cscct.IncrementalClassifier.learn" in CALLABLES


@pytest.mark.parametrize("name", sorted(public_names()))
def test_public_names_have_docstrings(name: str) -> None:
    value = public_names()[name]
    if not inspect.ismodule(value) and (inspect.isclass(value) or inspect.isroutine(value)):
        doc = inspect.getdoc(value)
        assert doc, f"{name} has no docstring"
        assert doc.splitlines()[0].endswith((".", ":")), f"the first line of {name} is not a sentence"


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_arguments_and_results_are_described(name: str) -> None:
    function = CALLABLES[name]
    doc = inspect.getdoc(function) or ""
    assert doc, f"{name} has no docstring"
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters if p not in ("self", "cls")]
    if len(parameters) > 1 or (parameters and "Args:" not in doc and parameters[0] not in doc):
        for parameter in parameters:
            assert "Args:" in doc or f"`{parameter}`" in doc, f"{name} does not describe {parameter}"
            assert parameter in doc, f"{name} does not describe {parameter}"
    returned = str(signature.return_annotation)
    first = doc.splitlines()[0]
    if returned not in ("None", "Self", "<class 'inspect._empty'>"):
        described = (
            "Return" in doc
            or "Yield" in doc
            or first.split()[0] in ("Predict", "Load", "Convert", "Decorate", "Register")
        )
        assert described, f"{name} does not say what it returns: {first!r}"
