"""POD-spatial loss of PODNet."""

import numpy as np
import pytest
import torch

import oracles
from cscct.losses import pod_spatial
from oracles import compare, vector


def shared(name: str) -> list[torch.Tensor]:
    return [torch.tensor(maps, dtype=torch.float64) for maps in vector(name)]


def random(*shapes: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(len(shapes))
    return [rng.normal(size=shape) for shape in shapes], [rng.normal(size=shape) for shape in shapes]


def tensors(*shapes: tuple[int, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    student, teacher = random(*shapes)
    return [torch.from_numpy(maps) for maps in student], [torch.from_numpy(maps) for maps in teacher]


def test_vectors() -> None:
    new, old = shared("podnet/new_maps"), shared("podnet/old_maps")
    assert pod_spatial(new, old).item() == pytest.approx(vector("podnet/pod_spatial"), abs=1e-6)
    assert pod_spatial(new[:1], old[:1]).item() == pytest.approx(vector("podnet/pod_spatial_layer1_only"), abs=1e-6)


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 1, 1, 2)],
        [(2, 3, 4, 2)],
        [(3, 2, 2, 3), (3, 4, 1, 2)],
        [(2, 1, 3, 3), (2, 2, 2, 2), (2, 3, 1, 1)],
    ],
)
def test_reference_implementation(shapes: list[tuple[int, ...]]) -> None:
    student, teacher = random(*shapes)
    compare(
        lambda *maps: pod_spatial(maps, [torch.from_numpy(array) for array in teacher]),
        lambda *maps: oracles.pod_spatial(maps, teacher),
        *student,
    )


def test_identical_maps_give_zero_and_a_finite_gradient() -> None:
    maps, _ = tensors((3, 2, 4, 4), (3, 4, 2, 2))
    student = [layer.clone().requires_grad_() for layer in maps]
    value = pod_spatial(student, maps)
    value.backward()
    assert value.item() == 0
    for layer in student:
        torch.testing.assert_close(layer.grad, torch.zeros_like(layer))


def test_dead_maps_give_a_finite_gradient() -> None:
    _, teacher = tensors((3, 2, 4, 4))
    student = torch.zeros(3, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    value = pod_spatial([student], teacher)
    value.backward()
    assert value.item() == pytest.approx(1)  # distance from a zero profile to a unit profile
    assert student.grad.isfinite().all()


def test_invariant_to_sign_and_scale() -> None:
    student, teacher = tensors((3, 2, 4, 4), (3, 4, 2, 2))
    value = pod_spatial(student, teacher).item()
    moved = [-3.0 * layer for layer in student]
    assert pod_spatial(moved, teacher).item() == pytest.approx(value, abs=1e-12)
    # Every layer has the same weight, whatever its size.
    layers = [pod_spatial([s], [t]).item() for s, t in zip(student, teacher, strict=True)]
    assert value == pytest.approx(sum(layers) / 2, abs=1e-12)


def test_only_the_profiles_matter() -> None:
    """Maps with the same sums along both axes have distance 0."""
    maps = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(1, 1, 2, 2)
    assert pod_spatial([maps], [maps.flip(3)]).item() == 0
    assert pod_spatial([maps], [torch.tensor([[1.0, 1.0], [0.0, 0.0]]).view(1, 1, 2, 2)]).item() > 0.1


@pytest.mark.parametrize(
    ("student", "teacher", "message"),
    [
        ([], [], r"the same number of maps, at least 1, not 0 and 0"),
        ([(2, 1, 3, 3)], [], r"not 1 and 0"),
        ([(2, 1, 3, 3)], [(2, 1, 3, 4)], r"the same shape .*not \(2, 1, 3, 3\) and \(2, 1, 3, 4\)"),
        ([(2, 9)], [(2, 9)], r"\(samples, channels, height, width\), not \(2, 9\)"),
    ],
)
def test_invalid_shapes(student: list[tuple[int, ...]], teacher: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pod_spatial([torch.zeros(shape) for shape in student], [torch.zeros(shape) for shape in teacher])
