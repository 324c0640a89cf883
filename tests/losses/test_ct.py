"""Controlled transfer."""

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from cscct.losses import controlled_transfer as ct
from oracles import array, compare, tensor, vector

FORMS = ("official", "batchmean", "paper", "literal")


def random(p: int, q: int, d: int, positive: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return student, teacher and is_new. The literal form needs the similarities of positive features."""
    rng = np.random.default_rng([p, q, d])
    student, teacher = rng.normal(size=(2, p + q, d))
    is_new = rng.permutation(np.arange(p + q) < p)
    return (abs(student), abs(teacher), is_new) if positive else (student, teacher, is_new)


def tensors(p: int, q: int, d: int, positive: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    student, teacher, is_new = (torch.from_numpy(array) for array in random(p, q, d, positive))
    return student, teacher, is_new


def shared() -> tuple[Tensor, Tensor, Tensor]:
    return tensor("shared_inputs/cur"), tensor("shared_inputs/ref"), tensor("shared_inputs/y") >= vector("ct/p")


@pytest.mark.parametrize(
    ("path", "form", "temperature", "positive"),
    [
        ("ct/official", "official", vector("ct/T"), False),
        ("ct/batchmean_T2", "batchmean", 2.0, False),
        ("ct/paper_softmax", "paper", 2.0, False),
        ("ct/official_T1", "official", 1.0, False),
        ("ct/abs_inputs/official", "official", 2.0, True),
        ("ct/abs_inputs/paper_softmax", "paper", 2.0, True),
        ("ct/abs_inputs/paper_literal_T2", "literal", 2.0, True),
        ("ct/abs_inputs/paper_literal_T7", "literal", 7.0, True),
    ],
)
def test_vectors(path: str, form: str, temperature: float, positive: bool) -> None:
    cur, ref, is_new = shared()
    if positive:
        cur, ref = cur.abs(), ref.abs()
    assert ct(cur, ref, is_new, temperature, form).item() == pytest.approx(vector(path), abs=1e-6)  # type: ignore[arg-type]


def test_vectors_of_empty_sides() -> None:
    cur, ref, is_new = shared()
    assert ct(cur[is_new], ref[is_new], is_new[is_new]).item() == vector("ct/no_old")
    assert ct(cur[~is_new], ref[~is_new], is_new[~is_new]).item() == vector("ct/no_new")
    single_old = is_new | (torch.arange(6) > 0)
    assert ct(cur, ref, single_old).item() == pytest.approx(vector("ct/one_old_sample"), abs=1e-12)


def test_vectors_literal_is_undefined() -> None:
    assert vector("ct/paper_literal") is None
    with pytest.raises(ValueError, match=r"needs positive similarities, but \d of 9 are not"):
        ct(*shared(), form="literal")


def test_vectors_of_shares() -> None:
    """The slow version computes the reference distributions, and the official form is their divergence."""
    cur, ref, is_new = (tensor.numpy() for tensor in shared())
    assert (is_new.sum(), (~is_new).sum()) == (vector("ct/p"), vector("ct/q"))
    student, teacher = array("ct/P_cur"), array("ct/P_ref")
    np.testing.assert_allclose(oracles.ct_shares(cur, is_new, 2.0), student, atol=1e-6)
    np.testing.assert_allclose(oracles.ct_shares(ref, is_new, 2.0), teacher, atol=1e-6)
    divergence = (teacher * np.log(teacher / student)).sum()
    assert ct(*shared()).item() == pytest.approx(4 * divergence / 9, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize(("p", "q", "d"), [(1, 1, 2), (1, 4, 3), (4, 1, 3), (3, 5, 4), (6, 2, 2)])
def test_reference_implementation(p: int, q: int, d: int, temperature: float, form: str) -> None:
    student, teacher, is_new = random(p, q, d, positive=form == "literal")
    compare(
        lambda s: ct(s, torch.from_numpy(teacher), torch.from_numpy(is_new), temperature, form),  # type: ignore[arg-type]
        lambda s: oracles.ct(s, teacher, is_new, temperature, form),
        student,
    )


@pytest.mark.parametrize("form", FORMS)
def test_zero_for_equal_directions(form: str) -> None:
    student, _, is_new = tensors(3, 4, 5, positive=True)
    stretched = student * torch.linspace(0.1, 9, 7, dtype=torch.float64)[:, None]
    student.requires_grad_()
    value = ct(student, stretched, is_new, form=form)  # type: ignore[arg-type]
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(student.grad, torch.zeros_like(student), atol=1e-12, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_invariant_to_scale_and_rotation(form: str) -> None:
    student, teacher, is_new = tensors(3, 4, 5, positive=True)
    value = ct(student, teacher, is_new, form=form).item()  # type: ignore[arg-type]
    assert value > 1e-6
    stretch = torch.linspace(0.1, 30, 7, dtype=torch.float64)[:, None]
    rotation = torch.linalg.qr(torch.from_numpy(np.random.default_rng(0).normal(size=(5, 5)))).Q
    for moved in (student * stretch, student @ rotation):
        assert ct(moved, teacher, is_new, form=form).item() == pytest.approx(value, abs=1e-10)  # type: ignore[arg-type]


@pytest.mark.parametrize("side", ["student", "teacher"])
def test_literal_needs_positive_similarities(side: str) -> None:
    student, teacher, is_new = tensors(3, 4, 5, positive=True)
    features = student if side == "student" else teacher
    features[is_new.nonzero()[0]] *= -1
    with pytest.raises(ValueError, match="4 of 12 are not"):
        ct(student, teacher, is_new, form="literal")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("p", "q"), [(0, 0), (0, 3), (3, 0), (3, 1)])
def test_zero_without_pairs_or_with_a_single_old_sample(p: int, q: int, form: str) -> None:
    student, teacher, is_new = tensors(p, q, 4, positive=True)
    student.requires_grad_()
    value = ct(student, teacher, is_new, form=form)  # type: ignore[arg-type]
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(student.grad, torch.zeros_like(student), atol=1e-12, rtol=0)


def test_student_with_more_features() -> None:
    student, teacher, is_new = torch.randn(6, 3), torch.randn(6, 3), torch.tensor([True, False] * 3)
    wide = torch.cat([student, torch.zeros(6, 2)], dim=1)  # the same similarities in a larger space
    torch.testing.assert_close(ct(wide, teacher, is_new), ct(student, teacher, is_new))


@pytest.mark.parametrize(
    ("student", "teacher", "is_new", "options", "message"),
    [
        ((4, 3), (5, 3), (4,), {}, r"\(4, 3\) and \(5, 3\)"),
        ((4,), (4,), (4,), {}, r"must be matrices"),
        ((4, 3), (4, 3), (5,), {}, r"is_new must hold a value for each of the 4 samples, but its shape is \(5,\)"),
        ((4, 3), (4, 3), (4,), {"temperature": 0.0}, r"temperature must be positive, not 0"),
        ((4, 3), (4, 3), (4,), {"temperature": float("nan")}, r"temperature must be positive, not nan"),
        ((4, 3), (4, 3), (4,), {"form": "printed"}, r"form must be official, .* not 'printed'"),
    ],
)
def test_invalid_arguments(
    student: tuple[int, ...], teacher: tuple[int, ...], is_new: tuple[int, ...], options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ct(torch.zeros(student), torch.zeros(teacher), torch.zeros(is_new, dtype=torch.bool), **options)
