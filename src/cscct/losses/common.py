"""Shared parts of the losses: argument conversion and checks, unit features, masked means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_module

if TYPE_CHECKING:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from numpy.typing import ArrayLike
    from torch import Tensor
else:
    np, torch, F = lazy_module("numpy"), lazy_module("torch"), lazy_module("torch.nn.functional")

COSINE_FLOOR = 1e-8  # lower bound of a norm: a zero vector has cosine 0 with every vector


def at_least_float32(values: Tensor) -> Tensor:
    """Return `values` as float32, or unchanged if they are float64."""
    return values if values.dtype == torch.float64 else values.float()


def promote(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return both tensors in their common dtype, which is at least float32."""
    dtype = torch.promote_types(torch.promote_types(first.dtype, second.dtype), torch.float32)
    return first.to(dtype), second.to(dtype)


def unit(features: Tensor) -> Tensor:
    """Return the rows scaled to unit length, at least in float32."""
    return F.normalize(at_least_float32(features), dim=-1, eps=COSINE_FLOOR)


def unit_pair(student: Tensor, teacher: Tensor, *, same_width: bool = True) -> tuple[Tensor, Tensor]:
    """Return the unit features of student and teacher in their common dtype, without gradient for the teacher.

    Losses that compare samples within each of the two spaces allow features of different dimensions (`same_width`).
    """
    columns = None if same_width else 1  # of the shape that must agree
    if student.ndim != 2 or teacher.ndim != 2 or student.shape[:columns] != teacher.shape[:columns]:
        raise ValueError(
            "student and teacher must be matrices of the same shape (samples, features), "
            f"not {tuple(student.shape)} and {tuple(teacher.shape)}."
        )
    student, teacher = promote(student, teacher.detach())
    return unit(student), unit(teacher)


def connected_zero(*tensors: Tensor) -> Tensor:
    """Return a zero whose gradient with respect to each tensor is zero."""
    return torch.stack([at_least_float32(tensor).sum() * 0.0 for tensor in tensors]).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where `mask` is True, or a connected zero if it is True nowhere.

    The mask broadcasts to the shape of the values.
    """
    mask = mask.expand_as(values)
    return values.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def may_read_values(tensor: Tensor) -> bool:
    """Return whether Python code may depend on the values of a tensor: in eager mode on the CPU.

    Reading a value, which includes selecting rows by a mask, breaks the graph of `torch.compile` and makes the host
    wait for an accelerator. In these cases the losses use operations of fixed shape and leave out checks of values.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def as_tensor(values: Tensor | ArrayLike, device: torch.device) -> Tensor:
    """Return a tensor, an array or a sequence as a tensor on a device."""
    # The copy makes read-only arrays and negative strides acceptable to torch.
    return torch.as_tensor(values if isinstance(values, torch.Tensor) else np.array(values), device=device)


def sample_mask(is_new: Tensor | ArrayLike, samples: Tensor) -> Tensor:
    """Return `is_new` as a bool tensor with an entry for each row of `samples`, on its device."""
    mask = as_tensor(is_new, samples.device)
    _check_length(mask, len(samples), "is_new")
    return mask.bool()


def sample_labels(labels: Tensor | ArrayLike, samples: Tensor) -> Tensor:
    """Return `labels` as an int64 tensor with an entry for each row of `samples`, on its device."""
    converted = as_tensor(labels, samples.device)
    _check_length(converted, len(samples), "labels")
    if converted.is_floating_point() and len(converted):  # an empty list has no integer dtype
        raise ValueError(f"labels must be integers, not {converted.dtype}.")
    return converted.long()


def column_labels(labels: Tensor | ArrayLike, scores: Tensor) -> Tensor:
    """Return `labels` as `sample_labels` does, each of them a column of `scores`."""
    if scores.ndim != 2:
        raise ValueError(f"scores must be a matrix (samples, classes), not {tuple(scores.shape)}.")
    columns = sample_labels(labels, scores)
    if len(columns) and may_read_values(columns):
        lowest, highest = (int(bound) for bound in columns.aminmax())
        if lowest < 0 or highest >= scores.shape[1]:
            raise ValueError(f"labels range from {lowest} to {highest}, but the scores have {scores.shape[1]} classes.")
    return columns


def check_positive(value: float, name: str) -> None:
    """Raise ValueError unless the value is positive."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, not {value}.")


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    """Raise ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}.")


def _check_length(values: Tensor, samples: int, name: str) -> None:
    if values.ndim != 1 or len(values) != samples:
        raise ValueError(
            f"{name} must hold a value for each of the {samples} samples, but its shape is {tuple(values.shape)}."
        )
