"""Cross-space clustering."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from cscct.losses import cross_space_clustering as csc
from oracles import array, compare, tensor, vector

SHAPES = [(1, 1), (1, 3), (2, 2), (7, 5), (12, 3)]


def random(k: int, d: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([k, d])
    return rng.normal(size=(k, d)), rng.normal(size=(k, d)), rng.integers(0, classes, k)


def tensors(k: int, d: int, classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    student, teacher, labels = (torch.from_numpy(array) for array in random(k, d, classes))
    return student, teacher, labels


def test_vectors() -> None:
    cur, ref, y = tensor("shared_inputs/cur"), tensor("shared_inputs/ref"), tensor("shared_inputs/y")
    cur.requires_grad_()
    value = csc(cur, ref, y)
    value.backward()
    assert value.item() == pytest.approx(vector("csc/value"), abs=1e-6)
    np.testing.assert_allclose(cur.grad, array("csc/grad_cur"), atol=1e-6)
    assert csc(cur, ref, torch.zeros_like(y)).item() == pytest.approx(vector("csc/value_all_same_class"), abs=1e-6)
    with_zero_row = cur.detach().clone()
    with_zero_row[5] = 0
    assert csc(with_zero_row, ref, y).item() == pytest.approx(vector("csc/value_zero_row"), abs=1e-6)


def test_vector_of_cosines() -> None:
    """For two samples the loss is mean(s) − mean(s · cos) of four cosines."""
    cur, ref, y = tensor("shared_inputs/cur"), tensor("shared_inputs/ref"), tensor("shared_inputs/y")
    cosines = array("csc/cos_cur_ref")
    for i, j in combinations(range(6), 2):
        sign = np.array([[1, 1], [1, 1]]) if y[i] == y[j] else np.array([[1, -1], [-1, 1]])
        expected = sign.mean() - (sign * cosines[np.ix_([i, j], [i, j])]).mean()
        assert csc(cur[[i, j]], ref[[i, j]], y[[i, j]]).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_reference_implementation(shape: tuple[int, int]) -> None:
    student, teacher, labels = random(*shape)
    compare(
        lambda s: csc(s, torch.from_numpy(teacher), torch.from_numpy(labels)),
        lambda s: oracles.csc(s, teacher, labels),
        student,
    )


def test_invariant_to_feature_scale_and_label_names() -> None:
    student, teacher, labels = tensors(9, 4)
    value = csc(student, teacher, labels).item()
    stretch = torch.linspace(0.1, 30, 9, dtype=torch.float64)[:, None]
    assert csc(student * stretch, teacher, labels).item() == pytest.approx(value, abs=1e-10)
    assert csc(student, teacher * stretch, labels).item() == pytest.approx(value, abs=1e-10)
    assert csc(student, teacher, 1000 - 7 * labels).item() == pytest.approx(value, abs=1e-10)
    assert csc(-student, teacher, labels).item() != pytest.approx(value, abs=1e-3)


def test_bounds() -> None:
    """Separated clusters have loss −1, exchanged clusters 1."""
    student = torch.eye(2, dtype=torch.float64).repeat(3, 1) - 0.5
    labels = torch.tensor([0, 1] * 3)
    assert csc(student, student, labels).item() == pytest.approx(-1, abs=1e-12)
    assert csc(-student, student, labels).item() == pytest.approx(1, abs=1e-12)


def test_zero_feature_gives_finite_gradients() -> None:
    student, teacher, labels = tensors(4, 3)
    student[1] = 0
    teacher[2] = 0
    student.requires_grad_()
    value = csc(student, teacher, labels)
    value.backward()
    assert value.isfinite()
    assert student.grad.isfinite().all()


@pytest.mark.parametrize(
    ("student", "teacher", "labels", "message"),
    [
        ((4, 3), (4, 2), (4,), r"the same shape .*\(4, 3\) and \(4, 2\)"),
        ((4, 3), (3, 3), (4,), r"\(4, 3\) and \(3, 3\)"),
        ((4,), (4,), (4,), r"must be matrices"),
        ((4, 3), (4, 3), (3,), r"labels must hold a value for each of the 4 samples, but its shape is \(3,\)"),
        ((4, 3), (4, 3), (4, 1), r"labels must .*\(4, 1\)"),
    ],
)
def test_invalid_shapes(
    student: tuple[int, ...], teacher: tuple[int, ...], labels: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        csc(torch.zeros(student), torch.zeros(teacher), torch.zeros(labels, dtype=torch.long))
