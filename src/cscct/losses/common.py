"""What every loss shares: checks told in sentences, cosines, and a zero that stays in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_module

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

COSINE_FLOOR = 1e-8  # norms below this are taken as this, so that a zero vector has cosine 0 with everything


def at_least_float32(values: Tensor) -> Tensor:
    """At least float32: half precision is raised, float64 stays."""
    return values if values.dtype == torch.float64 else values.float()


def unit(features: Tensor) -> Tensor:
    return F.normalize(at_least_float32(features), dim=-1, eps=COSINE_FLOOR)


def connected_zero(*tensors: Tensor) -> Tensor:
    """A zero with a gradient path, for a side that is empty: `backward` works and gives zeros."""
    return torch.stack([at_least_float32(tensor).sum() * 0.0 for tensor in tensors]).sum()


def check_pair(student: Tensor, teacher: Tensor) -> None:
    if student.ndim != 2 or student.shape != teacher.shape:
        raise ValueError(
            "student and teacher features must be two matrices of one shape (samples, dimensions), "
            f"not {tuple(student.shape)} and {tuple(teacher.shape)}."
        )


def check_per_sample(values: Tensor, samples: int, name: str) -> None:
    if values.ndim != 1 or len(values) != samples:
        raise ValueError(f"{name} must hold one entry for each of the {samples} samples, not {tuple(values.shape)}.")


def check_labels(labels: Tensor, scores: Tensor) -> None:
    if scores.ndim != 2:
        raise ValueError(f"scores must be a matrix (samples, classes), not {tuple(scores.shape)}.")
    check_per_sample(labels, len(scores), "labels")
    if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= scores.shape[1]):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but there are {scores.shape[1]} classes."
        )


def check_positive(value: float, name: str) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive, not {value}.")
