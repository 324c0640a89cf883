"""The modules of CSC and CT are their functions times a weight."""

import pytest
import torch

from cscct.losses import ControlledTransfer, CrossSpaceClustering, controlled_transfer, cross_space_clustering


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(3)
    student, teacher = (torch.randn(12, 5, generator=gen, dtype=torch.float64) for _ in range(2))
    return student.requires_grad_(), teacher, torch.arange(12) % 4


def test_values_and_gradients(batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    student, teacher, labels = batch
    pairs = [
        (CrossSpaceClustering(weight=3.0)(student, teacher, labels), 3 * cross_space_clustering(*batch)),
        (
            ControlledTransfer(1.5, temperature=0.5, form="batchmean")(student, teacher, labels >= 2),
            1.5 * controlled_transfer(student, teacher, labels >= 2, 0.5, "batchmean"),
        ),
    ]
    for module, function in pairs:
        assert torch.equal(module, function)
        gradients = [torch.autograd.grad(value, student, retain_graph=True)[0] for value in (module, function)]
        assert torch.equal(*gradients)


def test_constructors_check_their_arguments() -> None:
    with pytest.raises(ValueError, match="form must be"):
        ControlledTransfer(form="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="temperature must be positive"):
        ControlledTransfer(temperature=0)
    assert "weight=2.0" in repr(CrossSpaceClustering(weight=2.0))
