"""Stream: a dataset in the order in which it is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..specs import TransformSpec
from ..structs import Part, Task
from .augment import View, make_view
from .base import Dataset, Split
from .holdout import Members, hold_out


@dataclass(frozen=True)
class Stream:
    """Tasks with their training and test images. Labels are positions in the class order.

    Attributes:
        tasks: Tasks in learning order.
        class_names: Class names by label.
        train_view: Training images as network inputs.
        test_view: Test images as network inputs.
        train: Indices of the training images of each class.
        test: Indices of the test images of each class.
        validation: Indices of the validation images of each class, in `train_view`; empty if there are none.
    """

    tasks: tuple[Task, ...]
    class_names: tuple[str, ...]
    train_view: View
    test_view: View
    train: tuple[tuple[int, ...], ...]
    test: tuple[tuple[int, ...], ...]
    validation: tuple[tuple[int, ...], ...] = ()

    def images_per_task(self, part: Part = "test") -> list[int]:
        """Return the number of test or validation images of each task.

        Args:
            part: `test` or `validation`.
        """
        members = self.test if part == "test" else self.validation
        return [sum(len(members[label]) for label in task.classes) for task in self.tasks]

    def seen_images(self, n_seen: int, part: Part = "test") -> tuple[Tensor, Tensor]:
        """Return the test or validation images of the classes seen so far.

        Args:
            n_seen: Number of classes.
            part: `test`, or `validation` for images in `train_view`.

        Returns:
            Dataset indices and labels, both of shape (n,), int64.
        """
        members = (self.test if part == "test" else self.validation)[:n_seen]
        indices = np.concatenate([np.asarray(images, dtype=np.int64) for images in members])
        labels = np.repeat(np.arange(n_seen), [len(images) for images in members])
        return torch.from_numpy(indices), torch.from_numpy(labels)

    def task_of_classes(self, n_seen: int) -> Tensor:
        """Return the index of the task of each class seen so far, shape (n_seen,), int64.

        Args:
            n_seen: Number of classes.
        """
        return torch.tensor([task.index for task in self.tasks for _ in task.classes])[:n_seen]


def make_stream(
    dataset: Dataset,
    order: Sequence[int],
    tasks: Sequence[Task],
    transform: TransformSpec,
    *,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
    validation: float | None = None,
    workers: int = 2,
    device_mb: float = 0.0,
) -> Stream:
    """Build the stream of a dataset.

    Args:
        dataset: Dataset.
        order: Classes to learn, in learning order.
        tasks: Tasks.
        transform: Transform settings.
        train_per_class: Maximum number of training images per class; the first ones are used.
        test_per_class: Maximum number of test images per class.
        validation: Fraction of these training images that is held out; None for no validation images.
        workers: Threads that decode image files.
        device_mb: Size up to which the images of a split are kept on a GPU.

    Raises:
        UserError: If the fraction leaves a class without training or validation images.
    """
    class_names = tuple(dataset.class_names[class_index] for class_index in order)
    train = _members(dataset.train, order, train_per_class)
    held_out: Members = ()
    if validation is not None:
        train, held_out = hold_out(train, class_names, validation)
    return Stream(
        tasks=tuple(tasks),
        class_names=class_names,
        train_view=make_view(dataset.train.images, transform, workers, device_mb),
        test_view=make_view(dataset.test.images, transform, workers, device_mb),
        train=train,
        test=_members(dataset.test, order, test_per_class),
        validation=held_out,
    )


def _members(split: Split, order: Sequence[int], limit: int | None) -> Members:
    return tuple(tuple(np.flatnonzero(split.labels == class_index)[:limit].tolist()) for class_index in order)
