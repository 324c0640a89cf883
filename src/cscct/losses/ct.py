"""Controlled transfer (CT): new samples keep the similarities to old samples that the previous network gave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import PositiveFloat

from ..lazy import lazy_module
from ..structs import Step
from .common import check_choice, check_positive, connected_zero, may_read_values, sample_mask, unit_pair
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    torch = lazy_module("torch")

CTForm = Literal["official", "batchmean", "paper", "literal"]
CT_FORMS: tuple[str, ...] = get_args(CTForm)


def controlled_transfer(
    student: Tensor,
    teacher: Tensor,
    is_new: Tensor | ArrayLike,
    temperature: float = 2.0,
    form: CTForm = "official",
) -> Tensor:
    """Controlled transfer loss of CSCCT (Ashok et al., ECCV 2022).

    The loss compares how similar each of the p new samples is to the q old samples, in the student's and in the
    teacher's feature space. With z the (p, q) cosines within a space and H = softmax(z / T) over the old samples:

    - `official`: T² / (p q) Σ H_t (log H_t − log H_s), as in the released code.
    - `batchmean`: the same with 1 / p instead of 1 / (p q).
    - `paper`: 1 / p Σ H_s (log H_s − log H_t), the direction printed in the paper.
    - `literal`: `paper` with H = z / Σ z exactly as printed. The temperature cancels.

    `official` is the default because it is the only form with published weights. Its factor 1 / q makes it weak;
    `batchmean` has a stronger effect.

    Args:
        student: Features of the network in training, shape (k, d). New and old samples receive gradients.
        teacher: Features of the same images from the previous network, shape (k, d). They receive no gradient.
        is_new: Whether each sample belongs to the current task and not to the memory, shape (k,).
        temperature: Temperature T of the softmax.
        form: `official`, `batchmean`, `paper` or `literal`.

    Returns:
        Unweighted scalar; 0 if the batch has no new or no old sample. The released code uses weight 1.5.

    Raises:
        ValueError: If shapes disagree, the temperature is not positive or the form is unknown; for `literal` also if a
            similarity is not positive (in a compiled graph the result is NaN or infinite instead).

    Examples:
        >>> import torch
        >>> from cscct.losses import controlled_transfer
        >>> teacher = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> student = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> is_new = [True, False, False]
        >>> controlled_transfer(student, teacher, is_new) > 0
        tensor(True)
        >>> controlled_transfer(teacher, teacher, is_new)
        tensor(0.)
    """
    check_positive(temperature, "temperature")
    check_choice(form, CT_FORMS, "form")
    student_unit, teacher_unit = unit_pair(student, teacher, same_width=False)
    new = sample_mask(is_new, student)
    p: Tensor | int
    q: Tensor | int
    if may_read_values(student) or (form == "literal" and not torch.compiler.is_compiling()):
        z_student, z_teacher = (unit[new] @ unit[~new].T for unit in (student_unit, teacher_unit))  # (p, q)
        (p, q), pairs = z_student.shape, None
        if p == 0 or q == 0:
            return connected_zero(student)
    else:
        # The shapes do not depend on is_new: all pairs of samples, with a mask of the pairs of new with old samples.
        z_student, z_teacher = (unit @ unit.T for unit in (student_unit, teacher_unit))  # (k, k)
        p, q, pairs = new.sum().clamp(min=1), (~new).sum().clamp(min=1), new[:, None] & ~new
    if form == "literal":
        log_s, log_t = _log_fractions(z_student, pairs), _log_fractions(z_teacher, pairs)
    else:
        log_s, log_t = (_log_softmax(z / temperature, pairs) for z in (z_student, z_teacher))
    printed = form in ("paper", "literal")
    first, second = (log_s, log_t) if printed else (log_t, log_s)
    divergence = first.exp() * (first - second)
    if pairs is not None:
        divergence = divergence.masked_fill(~pairs, 0.0)
    if printed:
        return divergence.sum() / p
    loss = divergence.sum() * temperature**2 / p
    return loss / q if form == "official" else loss


def _log_softmax(scores: Tensor, pairs: Tensor | None) -> Tensor:
    """Log-softmax of each row over the entries where `pairs` is True; finite everywhere."""
    if pairs is not None:
        scores = scores.masked_fill(~pairs, torch.finfo(scores.dtype).min)
    return torch.log_softmax(scores, dim=1)


def _log_fractions(similarities: Tensor, pairs: Tensor | None) -> Tensor:
    """Logarithm of each entry divided by the sum of its row, both over the entries where `pairs` is True."""
    if pairs is None:
        if (similarities <= 0).any():
            raise ValueError(
                "controlled transfer in its literal form needs positive similarities, but "
                f"{int((similarities <= 0).sum())} of {similarities.numel()} are not; use another form."
            )
        return similarities.log() - similarities.sum(dim=1, keepdim=True).log()
    totals = similarities.masked_fill(~pairs, 0.0).sum(dim=1, keepdim=True)
    return similarities.masked_fill(~pairs, 1.0).log() - totals.log()


@register
@dataclass(frozen=True)
class CT(Term):
    """Controlled transfer: new samples keep their similarities to old samples."""

    weight: float = 1.5
    temperature: PositiveFloat = 2.0
    """Temperature of the softmax over similarities."""
    form: CTForm = "official"
    """Variant of the loss; see `controlled_transfer`."""

    name = "ct"
    needs_full_batch = True

    def value(self, step: Step) -> Tensor:
        teacher = teacher_of(step).features
        return controlled_transfer(step.student.features, teacher, step.batch.is_new, self.temperature, self.form)
