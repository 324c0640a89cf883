"""The losses under `torch.compile(fullgraph=True)`, and without reading values on the host."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cscct.losses import (
    TERMS,
    ControlledTransfer,
    CrossSpaceClustering,
    Term,
    controlled_transfer,
    cross_space_clustering,
)
from cscct.structs import Output, Step
from loss_steps import STATELESS, gradients_of, make_step

DEFAULT_TERMS = [TERMS[name]() for name in STATELESS]
FORMS = [
    TERMS["ct"](form="batchmean"),  # type: ignore[call-arg]
    TERMS["ct"](form="paper"),  # type: ignore[call-arg]
    TERMS["nca"](form="paper"),  # type: ignore[call-arg]
    TERMS["new_cross_entropy"](classes="seen"),  # type: ignore[call-arg]
    TERMS["new_cross_entropy"](classes="batch"),  # type: ignore[call-arg]
    TERMS["memory_cross_entropy"](holds="seen"),  # type: ignore[call-arg]
]
LITERAL = TERMS["ct"](form="literal")  # type: ignore[call-arg]
LABELS = [[0, 1, 2, 3, 4, 0], [3, 3, 1, 1, 1, 1], [0, 0, 1, 2, 2, 1], [4, 4, 4, 4, 4, 4], [1, 0, 3, 0, 0, 0]]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Tensor], backend: str = "eager") -> Callable[..., Tensor]:
    """Compile with a backend that needs no C++ compiler."""
    return torch.compile(function, fullgraph=True, backend=backend)


def on_meta(step: Step) -> Step:
    """The step on the meta device, whose tensors have shapes but no values."""

    def move(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to("meta").requires_grad_(value.requires_grad)
        if isinstance(value, tuple):
            moved = [move(entry) for entry in value]
            return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
        return value

    return move(step)


def term_id(term: Term) -> str:
    return f"{term.name}-{'-'.join(str(value) for value in vars(term).values())}"


@pytest.mark.parametrize("term", [*DEFAULT_TERMS, *FORMS, LITERAL], ids=term_id)
def test_compiled_value_and_gradient(term: Term) -> None:
    """Mixed batches, batches without old or new samples, and a batch with a single new sample."""
    function = compiled(lambda step: term.value(step))
    for labels in LABELS:
        step = make_step(6, labels=torch.tensor(labels))
        if term is LITERAL:
            step = with_positive_features(step)
        expected, value = term.value(step), function(step)
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
        gradients = gradients_of(value, step.student)
        for name, gradient in gradients_of(expected, step.student).items():
            torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=1e-12)


def with_positive_features(step: Step) -> Step:
    def absolute(output: Output) -> Output:
        return output._replace(features=output.features.detach().abs().requires_grad_())

    assert step.teacher is not None
    return step._replace(student=absolute(step.student), teacher=absolute(step.teacher))


@pytest.mark.parametrize("term", [*DEFAULT_TERMS, *FORMS], ids=term_id)
def test_no_value_is_read_outside_the_cpu(term: Term) -> None:
    """An operator that reads values, which would synchronise an accelerator, raises on the meta device."""
    step = on_meta(make_step())
    value = term.value(step)
    value.backward()
    assert (value.device.type, value.shape) == ("meta", ())


def inputs_of(function: Callable[..., Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    step = make_step()
    last = step.batch.labels if function is cross_space_clustering else step.batch.is_new
    return step.student.features, step.teacher.features, last


@pytest.mark.parametrize(
    ("function", "module"),
    [(cross_space_clustering, CrossSpaceClustering(2.0)), (controlled_transfer, ControlledTransfer(2.0))],
    ids=["csc", "ct"],
)
def test_functions_and_modules_compile_with_their_gradients(
    function: Callable[..., Tensor], module: torch.nn.Module
) -> None:
    student, teacher, last = inputs_of(function)
    expected = function(student, teacher, last)
    for factor, loss in ((1.0, compiled(function, "aot_eager")), (2.0, compiled(module))):
        value = loss(student, teacher, last)
        torch.testing.assert_close(value, factor * expected, rtol=0, atol=1e-12)
        (gradient,) = torch.autograd.grad(value, student)
        (reference,) = torch.autograd.grad(factor * expected, student, retain_graph=True)
        torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-12)


def test_compiled_functions_accept_lists_and_arrays() -> None:
    student, teacher, labels = inputs_of(cross_space_clustering)
    function = compiled(cross_space_clustering)
    for converted in (labels.tolist(), labels.numpy()):
        torch.testing.assert_close(
            function(student, teacher, converted), cross_space_clustering(student, teacher, labels)
        )


def test_literal_form_without_positive_similarities_is_not_finite_when_compiled() -> None:
    student = torch.tensor([[1.0, 0.0], [-1.0, 0.1]])
    with pytest.raises(ValueError, match="needs positive similarities"):
        controlled_transfer(student, student, [True, False], form="literal")
    value = compiled(controlled_transfer)(student, student, torch.tensor([True, False]), form="literal")
    assert not value.isfinite()
