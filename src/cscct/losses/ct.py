"""Controlled transfer: new samples keep the similarities to old samples that the previous model gave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import PositiveFloat

from ..lazy import lazy_module
from ..structs import Step
from .common import check_pair, check_per_sample, check_positive, connected_zero, unit
from .terms import Term, register, teacher_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")

CTForm = Literal["official", "batchmean", "paper", "literal"]


def controlled_transfer(
    student: Tensor, teacher: Tensor, is_new: Tensor, temperature: float = 2.0, form: CTForm = "official"
) -> Tensor:
    """Distance between the rows of new-to-old similarities in the student's space and in the teacher's.

    With p new and q old samples, z the (p, q) cosines within one space and H = softmax(z / T) over the old ones:

    - `official`: T²/(p q) Σ H_t (log H_t − log H_s), what the released code computes;
    - `batchmean`: the same over p instead of p q;
    - `paper`: 1/p Σ H_s (log H_s − log H_t), the printed direction with softmax;
    - `literal`: as `paper` with H = z / Σ z exactly as printed; the temperature cancels, and it is only defined
      where every similarity is positive.

    `official` is the default because it is the only form with published weights (β = 1.5, T = 2). Its 1/(p q)
    makes it weak: about q/4 times less than a batch mean of KL; try `batchmean` for a stronger effect.

    Gradient reaches the student's features, new and old. Zero, connected to the graph, when a side is empty.
    """
    check_pair(student, teacher)
    check_per_sample(is_new, len(student), "is_new")
    check_positive(temperature, "temperature")
    check_form(form)
    is_new = is_new.bool()
    here, there = unit(student), unit(teacher.detach())
    z_student = here[is_new] @ here[~is_new].T  # (p, q)
    z_teacher = there[is_new] @ there[~is_new].T
    p, q = z_student.shape
    if p == 0 or q == 0:
        return connected_zero(student)
    if form == "literal":
        log_s, log_t = _log_shares(z_student), _log_shares(z_teacher)
    else:
        log_s = torch.log_softmax(z_student / temperature, dim=1)
        log_t = torch.log_softmax(z_teacher / temperature, dim=1)
    if form in ("paper", "literal"):
        return (log_s.exp() * (log_s - log_t)).sum() / p
    divergence = (log_t.exp() * (log_t - log_s)).sum() * temperature**2 / p
    return divergence / q if form == "official" else divergence


def check_form(form: str) -> None:
    if form not in get_args(CTForm):
        raise ValueError(f"form must be official, batchmean, paper or literal, not {form!r}.")


def _log_shares(similarities: Tensor) -> Tensor:
    if (similarities <= 0).any():
        raise ValueError(
            "controlled transfer in its literal form needs positive similarities, and "
            f"{int((similarities <= 0).sum())} of {similarities.numel()} are not; use another form."
        )
    return similarities.log() - similarities.sum(dim=1, keepdim=True).log()


@register
@dataclass(frozen=True)
class CT(Term):
    """Controlled transfer: new samples keep their similarities to old ones."""

    weight: float = 1.5
    temperature: PositiveFloat = 2.0
    form: CTForm = "official"

    name = "ct"
    whole_batch = True

    def value(self, step: Step) -> Tensor:
        teacher = teacher_of(step).features
        return controlled_transfer(step.student.features, teacher, step.batch.is_new, self.temperature, self.form)
