"""NCA loss of PODNet."""

import numpy as np
import pytest
import torch

import oracles
from cscct.losses import nca
from oracles import compare, tensor, vector

FORMS = ("official", "paper")


def random(k: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([k, classes])
    return rng.uniform(-3, 0, (k, classes)), rng.integers(0, classes, k)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("lsc_nca/nca_code_scale1", {"margin": vector("lsc_nca/margin")}),
        ("lsc_nca/nca_code_scale1_margin0", {"margin": 0.0}),
        ("lsc_nca/nca_code_scale17", {"scale": vector("lsc_nca/scale")}),
        ("lsc_nca/nca_paper_scale1", {"form": "paper"}),
        ("lsc_nca/nca_paper_scale17", {"form": "paper", "scale": 1.7}),
    ],
)
def test_vectors(path: str, options: dict) -> None:
    value = nca(tensor("lsc_nca/similarities"), tensor("lsc_nca/y"), **options)
    assert value.item() == pytest.approx(vector(path), abs=1e-6)


def test_vector_of_a_single_class() -> None:
    similarities = tensor("lsc_nca/similarities")[:, :1]
    for form in FORMS:
        value = nca(similarities, torch.zeros(4, dtype=torch.long), form=form)  # type: ignore[arg-type]
        assert value.item() == vector("lsc_nca/nca_code_single_class")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1.0, 1.7])
@pytest.mark.parametrize("shape", [(1, 2), (4, 3), (6, 5)])
def test_reference_implementation(shape: tuple[int, int], scale: float, form: str) -> None:
    """Includes the gradient of the scale, which is learned."""
    similarities, labels = random(*shape)
    compare(
        lambda x, eta: nca(x, torch.from_numpy(labels), eta, form=form),  # type: ignore[arg-type]
        lambda x, eta: oracles.nca(x, labels, float(eta), form=form),
        similarities,
        np.array(scale),
    )


def test_official_is_independent_of_the_margin() -> None:
    similarities, labels = (torch.from_numpy(array) for array in random(6, 4))
    values = [nca(similarities, labels, 1.7, margin).item() for margin in (0.0, 0.6, 5.0)]
    assert max(values) - min(values) < 1e-12
    assert nca(similarities, labels, margin=0.0, form="paper") < nca(similarities, labels, margin=0.6, form="paper")


def test_official_equals_cross_entropy_if_predictions_are_correct() -> None:
    similarities, _ = (torch.from_numpy(array) for array in random(6, 4))
    labels = similarities.argmax(dim=1)
    expected = torch.nn.functional.cross_entropy(1.7 * similarities, labels)
    assert nca(similarities, labels, 1.7).item() == pytest.approx(expected.item(), abs=1e-12)
    # It differs otherwise.
    similarities, y = tensor("lsc_nca/similarities"), tensor("lsc_nca/y")
    assert torch.nn.functional.cross_entropy(similarities, y).item() == pytest.approx(
        vector("lsc_nca/softmax_ce_scale1"), abs=1e-6
    )
    assert nca(similarities, y).item() > vector("lsc_nca/softmax_ce_scale1") + 0.1


@pytest.mark.parametrize("form", FORMS)
def test_invariant_to_a_shift_of_all_scores(form: str) -> None:
    similarities, labels = (torch.from_numpy(array) for array in random(6, 4))
    value = nca(similarities, labels, form=form).item()  # type: ignore[arg-type]
    shift = torch.arange(6.0, dtype=torch.float64)[:, None]
    assert nca(similarities + shift, labels, form=form).item() == pytest.approx(value, abs=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 1), (0, 1)])
def test_zero_without_samples_or_with_a_single_class(shape: tuple[int, int], form: str) -> None:
    similarities = torch.rand(shape, requires_grad=True)
    value = nca(similarities, torch.zeros(shape[0], dtype=torch.long), form=form)  # type: ignore[arg-type]
    value.backward()
    assert value.item() == 0
    torch.testing.assert_close(similarities.grad, torch.zeros(shape))


def test_a_single_class_gives_the_scale_a_zero_gradient() -> None:
    """SGD skips the weight decay of parameters whose gradient is None."""
    scale = torch.tensor(1.7, requires_grad=True)
    nca(torch.rand(3, 1, requires_grad=True), torch.zeros(3, dtype=torch.long), scale).backward()
    assert scale.grad.item() == 0


@pytest.mark.parametrize(
    ("similarities", "labels", "options", "message"),
    [
        ((4,), [0] * 4, {}, r"scores must be a matrix \(samples, classes\), not \(4,\)"),
        ((4, 3), [0] * 3, {}, r"labels must hold a value for each of the 4 samples, but its shape is \(3,\)"),
        ((2, 3), [0, 3], {}, r"labels range from 0 to 3, but the scores have 3 classes"),
        ((2, 3), [0, 1], {"form": "code"}, r"form must be official or paper, not 'code'"),
    ],
)
def test_invalid_arguments(similarities: tuple[int, ...], labels: list[int], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nca(torch.zeros(similarities), torch.tensor(labels), **options)
