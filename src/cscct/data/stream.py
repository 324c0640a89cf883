"""A dataset put in the order in which it will be learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..specs import TransformSpec
from ..structs import Task
from .augment import View, make_view
from .base import Dataset, Split


@dataclass(frozen=True)
class Stream:
    """Labels from here on are positions in the class order; `train[label]` and `test[label]` are dataset indices."""

    tasks: tuple[Task, ...]
    class_names: tuple[str, ...]
    train_view: View
    test_view: View
    train: tuple[tuple[int, ...], ...]
    test: tuple[tuple[int, ...], ...]

    def test_images(self, classes: range) -> int:
        return sum(len(self.test[label]) for label in classes)

    def seen_test(self, n_seen: int) -> tuple[Tensor, Tensor]:
        """Dataset indices and labels of the test images of the classes seen."""
        indices = np.concatenate([np.asarray(self.test[label], dtype=np.int64) for label in range(n_seen)])
        labels = np.repeat(np.arange(n_seen), [len(self.test[label]) for label in range(n_seen)])
        return torch.from_numpy(indices), torch.from_numpy(labels)


def make_stream(
    dataset: Dataset,
    order: Sequence[int],
    tasks: Sequence[Task],
    transform: TransformSpec,
    *,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
    workers: int = 2,
) -> Stream:
    """`order` names the classes to be learned; a limit keeps the first images of each class."""
    return Stream(
        tasks=tuple(tasks),
        class_names=tuple(dataset.class_names[original] for original in order),
        train_view=make_view(dataset.train.images, transform, workers),
        test_view=make_view(dataset.test.images, transform, workers),
        train=_members(dataset.train, order, train_per_class),
        test=_members(dataset.test, order, test_per_class),
    )


def _members(split: Split, order: Sequence[int], limit: int | None) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(np.flatnonzero(split.labels == original)[:limit].tolist()) for original in order)
