"""Protocol of a run: class order, tasks, and the settings that depend on data and machine. Does not import torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config import PrecisionName, Settings, without_scaled_losses
from ..data.holdout import validation_count
from ..data.registry import listing
from ..data.tasks import class_order, split_tasks, tasks_of, wrong_sum
from ..errors import UserError, Warn
from ..structs import Task
from ..text import suggest
from ..threads import default_threads

if TYPE_CHECKING:
    from ..data import Dataset

MIN_PIXELS = 20_000_000  # of all training images; with fewer, measuring a precision costs more than it saves


def class_sequence(settings: Settings, class_names: Sequence[str]) -> list[int]:
    """Return the classes of the dataset that a run learns, in learning order.

    Args:
        settings: Settings of the run.
        class_names: Names of all classes of the dataset.

    Raises:
        UserError: If `data.classes` is larger than the number of available classes, or `protocol.tasks` names a class
            that the dataset does not have.
    """
    names = settings.protocol.names
    if names is None:
        return _ordered_classes(settings, len(class_names))
    unknown = [name for name in names if name not in class_names]
    if unknown:
        raise UserError(
            f"protocol.tasks contains the class {unknown[0]!r}, which {settings.dataset} does not have"
            f"{suggest(unknown[0], class_names)}; its classes are {listing(class_names)}."
        )
    return [class_names.index(name) for name in names]


def _ordered_classes(settings: Settings, num_classes: int) -> list[int]:
    """The classes that `data.order` and `data.classes` select."""
    name = settings.data.order
    order = class_order(settings.seed if name == "seed" else name, num_classes)
    if settings.data.classes and settings.data.classes > len(order):
        raise UserError(f"data.classes is {settings.data.classes}, but only {len(order)} classes are available.")
    return order[: settings.data.classes]


def with_protocol(settings: Settings, num_classes: int) -> Settings:
    """Return the settings with default values for B (`protocol.base`) and C (`protocol.step`) filled in.

    Args:
        settings: Settings of the run.
        num_classes: Number of classes of the dataset.

    Raises:
        UserError: If `protocol.tasks` does not have as many classes as are learned.
    """
    classes, sizes = len(_ordered_classes(settings, num_classes)), settings.protocol.sizes
    if sizes:
        if sum(sizes) != classes:
            raise UserError(wrong_sum(sizes, classes) + ".")
        return settings
    base = settings.protocol.base or (classes + 1) // 2
    step = settings.protocol.step or max(1, (classes - base + 4) // 5)
    return settings.model_copy(update={"protocol": replace(settings.protocol, base=base, step=step)})


def task_sequence(settings: Settings, num_classes: int, warn: Warn) -> list[Task]:
    """Return the tasks of a run.

    Args:
        settings: Complete settings, see `complete`.
        num_classes: Number of classes that the run learns.
        warn: Called with each warning.

    Raises:
        ValueError: If the settings are not complete.
    """
    protocol = settings.protocol
    if protocol.sizes:
        return tasks_of(protocol.sizes)
    if protocol.base is None or protocol.step is None:
        raise ValueError("protocol.base and protocol.step are not set: complete the settings first.")
    tasks = split_tasks(num_classes, protocol.base, protocol.step)
    if len(tasks) > 1 and tasks[-1].n_new < protocol.step:
        warn(
            f"The last task has {tasks[-1].n_new} classes instead of {protocol.step}: the classes do not divide evenly."
        )
    return tasks


def complete(settings: Settings, dataset: Dataset) -> Settings:
    """Return the settings with every value filled in that depends on the data or the machine.

    The recorded configuration is complete, so running it again gives the same result.

    Args:
        settings: Settings of the run.
        dataset: Dataset of the run.

    Raises:
        UserError: If the classes of the dataset do not fit `protocol.tasks` or `data.classes`, or its images do not
            fit `data.validation`.
    """
    from .device import choose_device  # import torch, which planning does not need

    order = class_sequence(settings, dataset.class_names)
    _check_validation(settings, dataset, order)
    runtime = replace(
        settings.runtime,
        device=choose_device(settings.runtime.device),
        threads=settings.runtime.threads or default_threads(),
    )
    completed = with_protocol(settings, len(dataset.class_names)).model_copy(update={"runtime": runtime})
    if completed.numerics.precision != "auto" or not _worth_measuring(completed, dataset):
        return with_precision(completed, "32-true")
    from .precision import choose_precision  # imports torch

    return with_precision(completed, choose_precision(completed, dataset))


def with_precision(settings: Settings, precision: PrecisionName) -> Settings:
    """Return the settings with another precision, if they leave it open (`auto`) and can be computed with it.

    Args:
        settings: Settings of the run.
        precision: The precision.
    """
    supported = precision != "fp16-mixed" or without_scaled_losses(settings) is None
    if settings.numerics.precision != "auto" or not supported:
        return settings
    return settings.model_copy(update={"numerics": replace(settings.numerics, precision=precision)})


def _worth_measuring(settings: Settings, dataset: Dataset) -> bool:
    """Return whether a run trains so much, in this process, that measuring the fastest precision pays."""
    runtime, network, data = settings.runtime, settings.network, settings.data
    if not settings.terms or not network.train_backbone or network.train_from or runtime.devices * runtime.nodes > 1:
        return False
    classes = data.classes or len(dataset.class_names)
    images = min(len(dataset.train), data.train_per_class * classes if data.train_per_class else len(dataset.train))
    return images * input_side(settings, dataset) ** 2 >= MIN_PIXELS


def input_side(settings: Settings, dataset: Dataset) -> int:
    """Return the height and width of the network's input, or an estimate if images of different sizes are not resized.

    Args:
        settings: Settings of the run.
        dataset: Dataset of the run.
    """
    from ..data import ArrayImages

    images = dataset.train.images
    own = int(max(images.pixels.shape[2:])) if isinstance(images, ArrayImages) else 224
    return settings.data.transform.size or own


def _check_validation(settings: Settings, dataset: Dataset, order: Sequence[int]) -> None:
    """Raise a `UserError` if a class would have no training or no validation images."""
    fraction, limit = settings.data.validation, settings.data.train_per_class
    if fraction is None:
        return
    counts = Counter(dataset.train.labels.tolist())
    for index in order:
        validation_count(dataset.class_names[index], min(counts[index], limit or counts[index]), fraction)
