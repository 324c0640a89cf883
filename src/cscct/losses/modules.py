"""The losses of the paper as modules, for those who keep their losses in `nn.Module`s."""

from __future__ import annotations

from torch import Tensor, nn

from .common import check_positive
from .csc import cross_space_clustering
from .ct import CTForm, check_form, controlled_transfer


class CrossSpaceClustering(nn.Module):
    """`cross_space_clustering` times a weight. By default unweighted; the paper's released code uses 3."""

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight

    def forward(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """student, teacher: (k, d) features of the same images; labels: (k,)."""
        return self.weight * cross_space_clustering(student, teacher, labels)

    def extra_repr(self) -> str:
        return f"weight={self.weight}"


class ControlledTransfer(nn.Module):
    """`controlled_transfer` times a weight. By default unweighted; the paper's released code uses 1.5."""

    def __init__(self, weight: float = 1.0, temperature: float = 2.0, form: CTForm = "official"):
        super().__init__()
        check_positive(temperature, "temperature")
        check_form(form)
        self.weight, self.temperature, self.form = weight, temperature, form

    def forward(self, student: Tensor, teacher: Tensor, is_new: Tensor) -> Tensor:
        """student, teacher: (k, d) features of the same images; is_new: (k,), False for samples of the memory."""
        return self.weight * controlled_transfer(student, teacher, is_new, self.temperature, self.form)

    def extra_repr(self) -> str:
        return f"weight={self.weight}, temperature={self.temperature}, form={self.form!r}"
