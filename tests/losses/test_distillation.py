"""Distillation of logits and the loss of the original iCaRL."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from cscct.losses import bce_distillation, logit_distillation
from oracles import compare, tensor, vector

SHAPES = [(1, 1, 1), (1, 3, 2), (4, 2, 2), (6, 5, 3), (5, 4, 0)]  # samples, classes, old classes


def random(k: int, seen: int, old: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([k, seen, old])
    return 3 * rng.normal(size=(k, seen)), 3 * rng.normal(size=(k, old)), rng.integers(0, seen, k)


def test_vectors() -> None:
    logits, teacher, y = tensor("icarl/logits"), tensor("icarl/ref_logits"), tensor("shared_inputs/y")
    weight = vector("icarl/T") ** 2 * vector("icarl/beta")  # 1, as in the released code
    kd = weight * logit_distillation(logits, teacher, vector("icarl/T"))
    assert kd.item() == pytest.approx(vector("icarl/kd"), abs=1e-6)
    bce = bce_distillation(logits, teacher, y)
    assert bce.item() == pytest.approx(vector("icarl/bce_distillation"), abs=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_logit_distillation_reference_implementation(shape: tuple[int, int, int], temperature: float) -> None:
    logits, teacher, _ = random(*shape)
    compare(
        lambda x: logit_distillation(x, torch.from_numpy(teacher), temperature),
        lambda x: oracles.logit_distillation(x, teacher, temperature),
        logits,
    )


@pytest.mark.parametrize("first_task", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_bce_distillation_reference_implementation(shape: tuple[int, int, int], first_task: bool) -> None:
    logits, teacher, labels = random(*shape)
    compare(
        lambda x: bce_distillation(x, None if first_task else torch.from_numpy(teacher), torch.from_numpy(labels)),
        lambda x: oracles.bce_distillation(x, None if first_task else teacher, labels),
        logits,
    )


def test_logit_distillation_ignores_constants_and_new_columns() -> None:
    logits, teacher, _ = (torch.from_numpy(array) for array in random(6, 5, 3))
    value = logit_distillation(logits, teacher).item()
    shift = torch.arange(6.0, dtype=torch.float64)[:, None]
    assert logit_distillation(logits + shift, teacher).item() == pytest.approx(value, abs=1e-12)
    assert logit_distillation(logits, teacher - shift).item() == pytest.approx(value, abs=1e-12)
    changed = logits.clone()
    changed[:, 3:] += 17
    assert logit_distillation(changed, teacher).item() == value
    assert logit_distillation(teacher, teacher).item() == pytest.approx(0, abs=1e-12)
    assert value > 0


def test_bce_targets_of_old_columns_come_from_the_teacher() -> None:
    """The label of an old class has no effect."""
    logits, teacher, _ = (torch.from_numpy(array) for array in random(6, 5, 3))
    values = {bce_distillation(logits, teacher, torch.full((6,), old)).item() for old in (0, 1, 2)}
    assert len(values) == 1
    assert bce_distillation(logits, teacher, torch.full((6,), 3)).item() not in values


def test_extreme_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    teacher = torch.tensor([[-1e4, 1e4]])
    total = logit_distillation(logits, teacher) + bce_distillation(logits, teacher, torch.tensor([2]))
    total.backward()
    assert total.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    "function", [logit_distillation, lambda logits, teacher: bce_distillation(logits, teacher, torch.zeros(4).long())]
)
@pytest.mark.parametrize(
    ("logits", "teacher", "message"),
    [
        ((4, 3), (5, 2), r"a row per sample, not \(4, 3\) and \(5, 2\)"),
        ((4, 3), (4, 5), r"the teacher has 5 classes, the student only 3"),
        ((4, 3), (4,), r"\(4, 3\) and \(4,\)"),
        ((4,), (4,), r"\(4,\)"),
    ],
)
def test_invalid_shapes(
    function: Callable[..., Tensor], logits: tuple[int, ...], teacher: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        function(torch.zeros(logits), torch.zeros(teacher))


def test_invalid_values() -> None:
    with pytest.raises(ValueError, match="temperature must be positive, not -1"):
        logit_distillation(torch.zeros(2, 3), torch.zeros(2, 2), temperature=-1.0)
    with pytest.raises(ValueError, match="labels range from 0 to 3, but the scores have 3 classes"):
        bce_distillation(torch.zeros(2, 3), None, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="labels must hold a value"):
        bce_distillation(torch.zeros(2, 3), None, torch.tensor([0]))
