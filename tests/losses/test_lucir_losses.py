"""Less-forget constraint and margin ranking loss of LUCIR, and POD-flat."""

import numpy as np
import pytest
import torch

import oracles
from cscct.losses import less_forget, margin_ranking, pod_flat
from oracles import compare, tensor, vector


def test_vectors_of_less_forget() -> None:
    cur, ref = tensor("shared_inputs/cur"), tensor("shared_inputs/ref")
    assert less_forget(cur, ref).item() == pytest.approx(vector("lucir/less_forget_mean"), abs=1e-6)
    assert pod_flat(cur, ref).item() == pytest.approx(vector("podnet/pod_flat"), abs=1e-6)


def test_vectors_of_margin_ranking() -> None:
    cosines, y, n_old = tensor("lucir/logits_before_scale"), tensor("shared_inputs/y"), vector("shared_inputs/n_old")
    options = {"k": vector("lucir/K"), "margin": vector("lucir/margin")}
    value = margin_ranking(cosines, y, n_old, **options).item()
    assert value == pytest.approx(vector("lucir/margin_ranking_K2"), abs=1e-6)
    assert margin_ranking(cosines, torch.full_like(y, 3), n_old).item() == vector("lucir/margin_ranking_no_old")
    # A single new class limits k to 1.
    assert vector("lucir/margin_ranking_K1_one_new_class/scores") == "logits_before_scale[:, :4]"
    value = margin_ranking(cosines[:, :4], tensor("lucir/margin_ranking_K1_one_new_class/y"), n_old).item()
    assert value == pytest.approx(vector("lucir/margin_ranking_K1_one_new_class/value"), abs=1e-6)


@pytest.mark.parametrize("function", [less_forget, pod_flat])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 3), (8, 6)])
def test_less_forget_reference_implementation(function, shape: tuple[int, int]) -> None:
    student, teacher = np.random.default_rng(shape).normal(size=(2, *shape))
    compare(lambda s: function(s, torch.from_numpy(teacher)), lambda s: oracles.less_forget(s, teacher), student)


@pytest.mark.parametrize("function", [less_forget, pod_flat])
def test_less_forget_depends_on_directions_only(function) -> None:
    student, teacher = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 6, 4)))
    stretch = torch.linspace(0.1, 30, 6, dtype=torch.float64)[:, None]
    value = function(student, teacher).item()
    assert function(student * stretch, teacher / stretch).item() == pytest.approx(value, abs=1e-12)
    assert function(student, student * stretch).item() == pytest.approx(0, abs=1e-12)
    assert function(student, -student).item() == pytest.approx(2, abs=1e-12)
    assert function(torch.zeros_like(student), teacher).item() == 1


@pytest.mark.parametrize("margin", [0.5, 0.1])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(("samples", "old", "new"), [(1, 1, 1), (5, 2, 1), (8, 3, 4), (6, 4, 2)])
def test_margin_ranking_reference_implementation(samples: int, old: int, new: int, k: int, margin: float) -> None:
    rng = np.random.default_rng([samples, old, new])
    scores, labels = rng.uniform(-1, 1, (samples, old + new)), rng.integers(0, old + new, samples)
    labels[0] = 0  # an old sample; batches without old samples have a separate test
    compare(
        lambda x: margin_ranking(x, torch.from_numpy(labels), old, k, margin),
        lambda x: oracles.margin_ranking(x, labels, old, k, margin),
        scores,
    )


@pytest.mark.parametrize(("old", "label"), [(3, 4), (0, 0), (5, 2)])
def test_margin_ranking_without_old_or_new(old: int, label: int) -> None:
    """Zero without a sample of an old class, without old classes and without new classes."""
    cosines = torch.rand(4, 5, requires_grad=True)
    value = margin_ranking(cosines, torch.full((4,), label), old)
    value.backward()
    assert value.item() == 0
    torch.testing.assert_close(cosines.grad, torch.zeros(4, 5))


def test_margin_ranking_invariances() -> None:
    rng = np.random.default_rng(3)
    cosines, labels = torch.from_numpy(rng.uniform(-1, 1, (8, 6))), torch.from_numpy(rng.integers(0, 6, 8))
    value = margin_ranking(cosines, labels, 3).item()
    assert margin_ranking(cosines + 0.3, labels, 3).item() == pytest.approx(value, abs=1e-12)
    assert margin_ranking(cosines[:, [0, 1, 2, 5, 3, 4]], labels.clamp(max=3), 3).item() == pytest.approx(
        value, abs=1e-12
    )
    old = labels < 3
    assert margin_ranking(cosines[old], labels[old], 3).item() == pytest.approx(value, abs=1e-12)
    separated = torch.eye(6, dtype=torch.float64)
    assert margin_ranking(separated, torch.arange(6), 3).item() == 0


@pytest.mark.parametrize("function", [less_forget, pod_flat])
@pytest.mark.parametrize(
    ("student", "teacher"), [((4, 3), (4, 2)), ((4, 3), (5, 3)), ((4,), (4,)), ((2, 3, 4), (2, 3, 4))]
)
def test_less_forget_invalid_shapes(function, student: tuple[int, ...], teacher: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"matrices of the same shape \(samples, features\), not \("):
        function(torch.zeros(student), torch.zeros(teacher))


@pytest.mark.parametrize(
    ("cosines", "labels", "k", "message"),
    [
        ((4,), [0] * 4, 2, r"scores must be a matrix \(samples, classes\), not \(4,\)"),
        ((4, 3), [0] * 3, 2, r"labels must hold a value for each of the 4 samples"),
        ((2, 3), [0, 3], 2, r"labels range from 0 to 3, but the scores have 3 classes"),
        ((2, 3), [-1, 0], 2, r"labels range from -1"),
        ((2, 3), [0, 1], 0, r"k must be positive, not 0"),
    ],
)
def test_margin_ranking_invalid_arguments(cosines: tuple[int, ...], labels: list[int], k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        margin_ranking(torch.zeros(cosines), torch.tensor(labels), 1, k)
