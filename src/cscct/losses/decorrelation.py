"""Class-wise decorrelation (CwD, Shi et al., CVPR 2022): features of the first task that fill the space evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lazy import lazy_module
from ..structs import Step, Task
from .common import as_tensor, at_least_float32, connected_zero
from .terms import Term, register

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    torch = lazy_module("torch")

VARIANCE_FLOOR = 1e-8


def class_decorrelation(features: Tensor, labels: Tensor | ArrayLike) -> Tensor:
    """Return the mean squared correlation between feature dimensions within a class.

    The features of each class with at least two samples are standardised. The squared entries of ZᵀZ outside the
    diagonal are averaged, summed over the classes and divided by the number of samples, as in the released code.

    Args:
        features: Shape (k, d).
        labels: Shape (k,).

    Returns:
        Scalar; 0 if no class has two samples.

    Examples:
        >>> import torch
        >>> from cscct.losses import class_decorrelation
        >>> class_decorrelation(torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), [0, 0, 0])  # (2² + 2²) / 2 / 3
        tensor(1.3333)
        >>> class_decorrelation(torch.tensor([[1.0, 1.0], [2.0, 2.0]]), [0, 1])
        tensor(0.)
    """
    features, labels = at_least_float32(features), as_tensor(labels, features.device)
    same = (labels[:, None] == labels).to(features.dtype)  # (k, k)
    counts = same.sum(dim=1)
    mean = same @ features / counts[:, None]
    centred = features - mean
    variance = same @ centred**2 / (counts - 1).clamp(min=1)[:, None]
    standard = centred / (VARIANCE_FLOOR + variance).sqrt()
    samples = (counts > 1).sum()
    width = features.shape[1]
    if not len(features) or width < 2:
        return connected_zero(features)
    gram = (standard @ standard.T) ** 2  # of samples of one class: the entries of ZZᵀ have the same sum as those of ZᵀZ
    diagonal = (same @ standard**2) ** 2 / counts[:, None]  # each class is counted once for each of its samples
    off_diagonal = (gram * same).sum() - diagonal.sum()
    return off_diagonal.clamp(min=0) / (width * (width - 1)) / samples.clamp(min=1)


@register
@dataclass(frozen=True)
class ClassDecorrelation(Term):
    """Correlation of feature dimensions within a class, in the first task only (CwD)."""

    weight: float = 0.5

    name = "class_decorrelation"
    first_task = True
    reads_teacher = False
    needs_full_batch = True

    def weight_for(self, task: Task) -> float:
        """Return the weight in the first task, and 0 in later ones."""
        return super().weight_for(task) if task.is_first else 0.0

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        return class_decorrelation(step.student.features, step.batch.labels)
