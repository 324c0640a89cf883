"""Forms of CSC and CT that were tried, as additions to any method: for `--plugin studies/forms.py`.

Notation: h_i the unit feature of sample i, t_i that of the previous network, y_i its class, m_c the mean direction of
class c in the previous network's space (from the batch, or from the memory and all new images), n_c the training images
of class c.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cscct.losses import Term, balanced_cross_entropy, register
from cscct.losses.common import connected_zero, unit
from cscct.losses.terms import classes_of, teacher_of
from cscct.methods import EXTRAS
from cscct.structs import Step


def balanced_clustering(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """CSC in which every class of the batch counts alike: the mean over classes c, and over their samples i, of
    -cos(h_i, m_c) + the mean over other classes c' of h_i . m_c'."""
    here, there = unit(student), unit(teacher.detach())
    _, group, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    means = here.new_zeros(len(counts), here.shape[1]).index_add_(0, group, there) / counts[:, None]
    others = (means.sum(dim=0) - means) / max(1, len(counts) - 1)
    return -((here * (means - others)[group]).sum(dim=1) / counts[group]).sum() / len(counts)


def class_contrast(student: Tensor, labels: Tensor, means: Tensor, temperature: float, counts: Tensor | None) -> Tensor:
    """Cross-entropy of softmax over c of h_i . m_c / T + log n_c: the last part, if it is asked for, makes up for
    classes of which there are few images (balanced softmax, Ren et al., 2020)."""
    if not len(labels):
        return connected_zero(student)
    logits = unit(student) @ means.T / temperature
    if counts is not None:
        logits = logits + counts.log()
    return F.cross_entropy(logits, labels)


def class_transfer(student: Tensor, teacher: Tensor, means: Tensor, temperature: float) -> Tensor:
    """CT over classes: batch mean of KL between softmax over old c of t_i . m_c / T and of h_i . m_c / T, times T."""
    if not len(student):
        return connected_zero(student)
    here = torch.log_softmax(unit(student) @ means.T / temperature, dim=1)
    there = torch.log_softmax(unit(teacher.detach()) @ means.T / temperature, dim=1)
    return temperature * (there.exp() * (there - here)).sum(dim=1).mean()


@register
@dataclass(frozen=True)
class BalancedClustering(Term):
    """CSC in which every class of the batch counts alike."""

    name = "balanced_clustering"
    whole_batch = True

    def value(self, step: Step) -> Tensor:
        return balanced_clustering(step.student.features, teacher_of(step).features, step.batch.labels)


@register
@dataclass(frozen=True)
class ClassContrast(Term):
    """Samples are told from other classes by the class means in the previous space."""

    temperature: float = 0.1
    balanced: bool = True
    samples: Literal["all", "old"] = "all"

    name = "class_contrast"
    whole_batch = True
    reads_teacher = False

    def value(self, step: Step) -> Tensor:
        classes = classes_of(step)
        chosen = ~step.batch.is_new if self.samples == "old" else torch.ones_like(step.batch.is_new)
        counts = classes.counts if self.balanced else None
        features, labels = step.student.features[chosen], step.batch.labels[chosen]
        return class_contrast(features, labels, classes.means, self.temperature, counts)


@register
@dataclass(frozen=True)
class ClassTransfer(Term):
    """Samples keep their similarities to the means of the old classes."""

    temperature: float = 0.1
    samples: Literal["all", "new"] = "new"

    name = "class_transfer"
    whole_batch = True

    def value(self, step: Step) -> Tensor:
        chosen = step.batch.is_new if self.samples == "new" else torch.ones_like(step.batch.is_new)
        features, teacher = step.student.features[chosen], teacher_of(step).features[chosen]
        return class_transfer(features, teacher, classes_of(step).means[: step.task.n_old], self.temperature)


@register
@dataclass(frozen=True)
class BalancedNCA(Term):
    """Balanced cross-entropy, with a power of the counts, in the place of PODNet's NCA; with power 1 it is what
    +balanced does there."""

    power: float = 1.0

    name = "balanced_nca"
    reads_teacher = False
    trains_head = True

    @property
    def replaces(self) -> tuple[str, ...]:
        return ("nca",)

    def value(self, step: Step) -> Tensor:
        counts = classes_of(step).counts.float() ** self.power
        return balanced_cross_entropy(step.student.logits, step.batch.labels, counts)


EXTRAS |= {
    "balanced-nca": ("balanced_nca",),
    "balanced-csc": ("balanced_clustering",),
    "contrast": ("class_contrast",),
    "transfer": ("class_transfer",),
    "contrast-transfer": ("class_contrast", "class_transfer"),
    "keep": ("less_forget",),
    "distil": ("logit_distillation",),
}
