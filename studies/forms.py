"""Variants of CSC and CT that were tried, as add-ons to any method: use `--plugin studies/forms.py`.

Notation: h_i is the unit feature of sample i, t_i that of the teacher, y_i its class, m_c the mean direction of class c
in the feature space of the teacher (from the batch, or from the memory and all new images), n_c the number of training
images of class c.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cscct.losses import Term, balanced_cross_entropy, register
from cscct.losses.common import connected_zero, unit
from cscct.losses.terms import classes_of, teacher_of
from cscct.methods import ADDONS
from cscct.structs import Step


def balanced_clustering(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Return CSC with equal weights of the classes in the batch.

    Mean over classes c, and over their samples i, of -h_i . m_c plus the mean of h_i . m_c' over all other classes c'.
    """
    h, t = unit(student), unit(teacher.detach())
    _, group, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    means = h.new_zeros(len(counts), h.shape[1]).index_add_(0, group, t) / counts[:, None]
    others = (means.sum(dim=0) - means) / max(1, len(counts) - 1)
    return -((h * (means - others)[group]).sum(dim=1) / counts[group]).sum() / len(counts)


def class_contrast(student: Tensor, labels: Tensor, means: Tensor, temperature: float, counts: Tensor | None) -> Tensor:
    """Return the cross-entropy of the logits h_i . m_c / T + log n_c over classes c.

    The optional counts n_c correct for class imbalance (balanced softmax, Ren et al., 2020).
    """
    if not len(labels):
        return connected_zero(student)
    logits = unit(student) @ means.T / temperature
    if counts is not None:
        logits = logits + counts.log()
    return F.cross_entropy(logits, labels)


def class_transfer(student: Tensor, teacher: Tensor, means: Tensor, temperature: float) -> Tensor:
    """Return CT over classes: T times the batch mean of KL(softmax(t_i . m_c / T), softmax(h_i . m_c / T)), c old."""
    if not len(student):
        return connected_zero(student)
    student_log = torch.log_softmax(unit(student) @ means.T / temperature, dim=1)
    teacher_log = torch.log_softmax(unit(teacher.detach()) @ means.T / temperature, dim=1)
    return temperature * (teacher_log.exp() * (teacher_log - student_log)).sum(dim=1).mean()


@register
@dataclass(frozen=True)
class BalancedClustering(Term):
    """CSC with equal weights of the classes in the batch."""

    name = "balanced_clustering"
    needs_full_batch = True

    def value(self, step: Step) -> Tensor:
        return balanced_clustering(step.student.features, teacher_of(step).features, step.batch.labels)


@register
@dataclass(frozen=True)
class ClassContrast(Term):
    """Cross-entropy over the class means in the feature space of the teacher."""

    temperature: float = 0.1
    balanced: bool = True
    samples: Literal["all", "old"] = "all"

    name = "class_contrast"
    needs_full_batch = True
    reads_teacher = False

    def value(self, step: Step) -> Tensor:
        classes = classes_of(step)
        selected = ~step.batch.is_new if self.samples == "old" else torch.ones_like(step.batch.is_new)
        counts = classes.counts if self.balanced else None
        features, labels = step.student.features[selected], step.batch.labels[selected]
        return class_contrast(features, labels, classes.means, self.temperature, counts)


@register
@dataclass(frozen=True)
class ClassTransfer(Term):
    """Distillation of the similarities to the means of old classes."""

    temperature: float = 0.1
    samples: Literal["all", "new"] = "new"

    name = "class_transfer"
    needs_full_batch = True

    def value(self, step: Step) -> Tensor:
        selected = step.batch.is_new if self.samples == "new" else torch.ones_like(step.batch.is_new)
        features, teacher = step.student.features[selected], teacher_of(step).features[selected]
        return class_transfer(features, teacher, classes_of(step).means[: step.task.n_old], self.temperature)


@register
@dataclass(frozen=True)
class BalancedNCA(Term):
    """Balanced cross-entropy with a power of the counts, instead of PODNet's NCA. Power 1 is the same as +balanced."""

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


ADDONS |= {
    "balanced-nca": ("balanced_nca",),
    "balanced-csc": ("balanced_clustering",),
    "contrast": ("class_contrast",),
    "transfer": ("class_transfer",),
    "contrast-transfer": ("class_contrast", "class_transfer"),
    "keep": ("less_forget",),
    "distil": ("logit_distillation",),
}
