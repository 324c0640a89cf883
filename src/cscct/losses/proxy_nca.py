"""PODNet's classification loss on class similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..lazy import lazy_module
from ..structs import Step
from .common import at_least_float32, check_choice, column_labels, connected_zero
from .terms import Term, register

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    torch = lazy_module("torch")

NCAForm = Literal["official", "paper"]
NCA_FORMS: tuple[str, ...] = get_args(NCAForm)


def nca(
    similarities: Tensor,
    labels: Tensor | ArrayLike,
    scale: Tensor | float = 1.0,
    margin: float = 0.6,
    form: NCAForm = "official",
) -> Tensor:
    """NCA loss of PODNet (Douillard et al., ECCV 2020), mean over samples.

    With η the scale and y the class of a sample:

    - `official`: −s_y + log(1 + Σ_{j≠y} exp s_j) with s_j = η (similarity_j − margin) minus the largest of them, as in
      the released code. The margin has no effect. The gradient flows through the maximum.
    - `paper`: max(0, log Σ_{j≠y} exp(η similarity_j) − η (similarity_y − margin)).

    `official` is the default because the published results of PODNet were computed with it.

    Args:
        similarities: Unscaled similarities to the classes, shape (k, classes).
        labels: Class of each sample, shape (k,): integers from 0 to classes − 1.
        scale: Factor η of the similarities: a number or a scalar tensor, which receives a gradient.
        margin: Margin by which the similarity to the class of a sample should exceed the others.
        form: `official` or `paper`.

    Returns:
        Scalar; 0 for an empty batch and for a single class.

    Raises:
        ValueError: If shapes disagree, a label is not a column of `similarities` or the form is unknown.

    Examples:
        >>> import torch
        >>> from cscct.losses import nca
        >>> similarities = torch.tensor([[0.0, -1.0]])
        >>> nca(similarities, [0])  # log(1 + 1/e)
        tensor(0.3133)
        >>> nca(similarities, [0], form="paper")  # the difference exceeds the margin
        tensor(0.)
    """
    labels = column_labels(labels, similarities)
    check_choice(form, NCA_FORMS, "form")
    if len(similarities) == 0 or similarities.shape[1] == 1:
        return connected_zero(similarities * scale)
    values, own = at_least_float32(similarities), labels[:, None]
    is_own = torch.zeros_like(values, dtype=torch.bool).scatter_(1, own, True)
    if form == "paper":
        scaled = scale * values
        positive = scaled.gather(1, own).squeeze(1) - scale * margin
        return (scaled.masked_fill(is_own, -torch.inf).logsumexp(dim=1) - positive).clamp(min=0).mean()
    scaled = scale * (values - margin)
    scaled = scaled - scaled.max(dim=1, keepdim=True).values
    return (scaled.masked_fill(is_own, 0.0).logsumexp(dim=1) - scaled.gather(1, own).squeeze(1)).mean()


@register
@dataclass(frozen=True)
class NCA(Term):
    """PODNet's classification loss on class similarities."""

    margin: float = 0.6
    """Margin that is subtracted from the similarity of the own class."""
    form: NCAForm = "official"
    """Variant of the loss; see `nca`."""

    name = "nca"
    with_mixup = "weighted"
    first_task = True
    reads_teacher = False
    trains_head = True

    def value(self, step: Step) -> Tensor:
        return nca(step.student.scores, step.batch.labels, step.student.scale, self.margin, self.form)
