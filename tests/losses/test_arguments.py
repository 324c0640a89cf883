"""Types of arguments that every loss accepts: arrays, sequences, and mixed precisions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cscct.losses import (
    TERMS,
    balanced_cross_entropy,
    controlled_transfer,
    cross_entropy,
    cross_space_clustering,
    new_cross_entropy,
)
from cscct.structs import Output
from loss_steps import COUNTS, STATELESS, gradients_of, make_step

NAMES = STATELESS
WITHOUT_LABELS = {"less_forget", "logit_distillation", "logit_replay", "pod_flat", "pod_spatial", "task_distillation"}
WITH_LABELS = sorted(set(NAMES) - WITHOUT_LABELS)


def read_only(values: Tensor) -> np.ndarray:
    array = values.numpy().copy()
    array.setflags(write=False)
    return array


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "convert",
    [
        lambda values: values.tolist(),
        lambda values: tuple(values.tolist()),
        lambda values: list(values),
        lambda values: values.numpy(),
        lambda values: values.numpy()[::-1].copy()[::-1],  # negative stride
        read_only,
        lambda values: values.numpy().astype(np.uint8),
        lambda values: values.numpy().astype(np.int32),
        lambda values: values.to(torch.int32),
        lambda values: values.to(torch.uint8),
    ],
    ids=[
        "list",
        "tuple",
        "list of tensors",
        "array",
        "reversed",
        "read-only",
        "uint8",
        "int32",
        "int32 tensor",
        "bytes",
    ],
)
@pytest.mark.parametrize("name", WITH_LABELS)
def test_types_of_labels_and_is_new(name: str, convert: Callable[[Tensor], Any]) -> None:
    step, term = make_step(), TERMS[name]()
    batch = step.batch._replace(labels=convert(step.batch.labels), is_new=convert(step.batch.is_new))
    assert term.value(step._replace(batch=batch)).item() == term.value(step).item()


@pytest.mark.parametrize("name", WITH_LABELS)
def test_empty_lists(name: str) -> None:
    step = make_step(k=0)
    assert TERMS[name]().value(step._replace(batch=step.batch._replace(labels=[], is_new=[]))).item() == 0


def test_class_counts_may_be_a_list() -> None:
    logits, labels = make_step().student.logits, make_step().batch.labels
    expected = balanced_cross_entropy(logits, labels, COUNTS)
    assert balanced_cross_entropy(logits, labels, COUNTS.tolist()).item() == expected.item()


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float32)], ids=str)
@pytest.mark.parametrize("name", [name for name in NAMES if TERMS[name].reads_teacher])
def test_student_and_teacher_are_promoted_to_the_larger_dtype(name: str, dtypes: tuple[torch.dtype, ...]) -> None:
    """The result is that of float64 inputs with the same values; gradients keep the dtype of the student."""
    step = make_step(dtype=dtypes[0], teacher_dtype=dtypes[1])
    assert step.teacher is not None
    step = step._replace(student=unscaled(step.student), teacher=unscaled(step.teacher))
    assert step.teacher is not None
    exact = step._replace(student=double(step.student), teacher=double(step.teacher))
    value, expected = TERMS[name]().value(step), TERMS[name]().value(exact)
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    assert {gradient.dtype for gradient in gradients_of(value, step.student).values()} == {dtypes[0]}


def unscaled(output: Output) -> Output:
    """With logits that are not rounded: a scale of 1."""
    return output._replace(scale=torch.ones_like(output.scale, requires_grad=True))


def double(output: Output) -> Output:
    maps = tuple(tensor.double() for tensor in output.maps)
    return Output(maps, output.features.double(), output.scores.double(), output.scale.double())


@pytest.mark.parametrize("function", [cross_space_clustering, lambda a, b, y: cross_entropy(a, y)], ids=["csc", "ce"])
def test_labels_must_be_integers(function: Callable[..., Tensor]) -> None:
    for labels in ([0.0, 1.5], np.array([0.0, 1.0]), torch.zeros(2)):
        with pytest.raises(ValueError, match=r"labels must be integers, not torch\.float"):
            function(torch.eye(2), torch.eye(2), labels)


def test_lengths_of_lists_are_checked() -> None:
    logits = torch.zeros(2, 3)
    with pytest.raises(
        ValueError, match=r"labels must hold a value for each of the 2 samples, but its shape is \(3,\)"
    ):
        cross_entropy(logits, [0, 1, 2])
    with pytest.raises(
        ValueError, match=r"is_new must hold a value for each of the 2 samples, but its shape is \(1,\)"
    ):
        controlled_transfer(logits, logits, [True])
    with pytest.raises(ValueError, match=r"is_new must hold a value for each of the 2 samples"):
        new_cross_entropy(logits, [0, 1], [[True, False]])
