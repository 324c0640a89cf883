"""The losses of CSCCT as `nn.Module`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from .common import check_choice, check_positive
from .csc import cross_space_clustering
from .ct import CT_FORMS, CTForm, controlled_transfer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class CrossSpaceClustering(nn.Module):
    """Weighted `cross_space_clustering` as a module.

    Args:
        weight: Factor of the loss. The released code of the paper uses 3.

    Examples:
        >>> import torch
        >>> from cscct.losses import CrossSpaceClustering
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> CrossSpaceClustering(weight=3.0)(features, features, [0, 1])
        tensor(-1.5000)
    """

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight

    def forward(self, student: Tensor, teacher: Tensor, labels: Tensor | ArrayLike) -> Tensor:
        """Return the weighted loss of a batch.

        Args:
            student: Features of the network in training, shape (k, d).
            teacher: Features of the same images from the previous network, shape (k, d).
            labels: Class of each sample, shape (k,): integers of any range.

        Returns:
            Weighted scalar.
        """
        return self.weight * cross_space_clustering(student, teacher, labels)

    def extra_repr(self) -> str:
        return f"weight={self.weight}"


class ControlledTransfer(nn.Module):
    """Weighted `controlled_transfer` as a module.

    Args:
        weight: Factor of the loss. The released code of the paper uses 1.5.
        temperature: Temperature of the softmax.
        form: `official`, `batchmean`, `paper` or `literal`.

    Raises:
        ValueError: If the temperature is not positive or the form is unknown.

    Examples:
        >>> from cscct.losses import ControlledTransfer
        >>> ControlledTransfer(weight=1.5)
        ControlledTransfer(weight=1.5, temperature=2.0, form='official')
    """

    def __init__(self, weight: float = 1.0, temperature: float = 2.0, form: CTForm = "official"):
        super().__init__()
        check_positive(temperature, "temperature")
        check_choice(form, CT_FORMS, "form")
        self.weight, self.temperature, self.form = weight, temperature, form

    def forward(self, student: Tensor, teacher: Tensor, is_new: Tensor | ArrayLike) -> Tensor:
        """Return the weighted loss of a batch.

        Args:
            student: Features of the network in training, shape (k, d).
            teacher: Features of the same images from the previous network, shape (k, d).
            is_new: Whether each sample belongs to the current task and not to the memory, shape (k,).

        Returns:
            Weighted scalar.
        """
        return self.weight * controlled_transfer(student, teacher, is_new, self.temperature, self.form)

    def extra_repr(self) -> str:
        return f"weight={self.weight}, temperature={self.temperature}, form={self.form!r}"
