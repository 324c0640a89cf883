"""Class orders, and the division of classes into tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UserError
from ..structs import Task
from .orders import PODNET_ORDERS


def class_order(name_or_seed: str | int | Sequence[int], num_classes: int) -> list[int]:
    """Return the classes in learning order.

    Args:
        name_or_seed: `seed-1993` (released code of iCaRL, LUCIR and CSCCT), `podnet-1` to `podnet-3` (released code of
            PODNet, 100 classes only), `natural` (order of the dataset), the seed of a random permutation, or a list of
            class indices.
        num_classes: Number of classes of the dataset.

    Returns:
        Class indices.

    Raises:
        UserError: If the order is unknown or does not fit the number of classes.
    """
    if isinstance(name_or_seed, int):
        if not 0 <= name_or_seed < 2**32:
            raise UserError(f"The seed of a class order must be between 0 and {2**32 - 1}, not {name_or_seed}.")
        return [int(c) for c in np.random.RandomState(name_or_seed).permutation(num_classes)]
    if not isinstance(name_or_seed, str):
        order = list(name_or_seed)
        if len(set(order)) != len(order) or not set(order) <= set(range(num_classes)) or not order:
            raise UserError(f"A class order must be a list of different classes from 0 to {num_classes - 1}.")
        return order
    if name_or_seed == "natural":
        return list(range(num_classes))
    if name_or_seed == "seed-1993":
        return class_order(1993, num_classes)
    if name_or_seed in PODNET_ORDERS:
        if num_classes != 100:
            raise UserError(f"The class order {name_or_seed} needs 100 classes; this dataset has {num_classes}.")
        return list(PODNET_ORDERS[name_or_seed])
    raise UserError(
        f"Unknown class order {name_or_seed!r}: use seed-1993, podnet-1, podnet-2, podnet-3, natural, seed, an integer "
        "or a list of classes."
    )


def split_tasks(num_classes: int, base: int, step: int) -> list[Task]:
    """Divide classes into tasks.

    Args:
        num_classes: Number of classes.
        base: Number of classes of the first task (B).
        step: Number of classes of each later task (C). The last task may have fewer.

    Raises:
        UserError: If `base` or `step` is not between 1 and the number of classes.
    """
    problems = [
        f"{name} is {value}, but must be between 1 and {num_classes}, the number of classes"
        for name, value in (("B (protocol.base)", base), ("C (protocol.step)", step))
        if not 1 <= value <= num_classes
    ]
    if problems:
        raise UserError("; ".join(problems) + ".")
    later = range(base, num_classes, step)
    return tasks_of([base, *(min(step, num_classes - seen) for seen in later)])


def tasks_of(sizes: Sequence[int]) -> list[Task]:
    """Return tasks with these numbers of classes.

    Args:
        sizes: Number of classes of each task.
    """
    return [Task(index, sum(sizes[:index]), size, tuple(sizes[:index])) for index, size in enumerate(sizes)]


def wrong_sum(sizes: Sequence[int], num_classes: int) -> str:
    """Return the message for tasks that do not have all classes, without a full stop.

    Args:
        sizes: Number of classes of each task.
        num_classes: Number of classes that are learned.
    """
    total = sum(sizes)
    nearest = f"the last task needs {sizes[-1] + num_classes - total}" if total - sizes[-1] < num_classes else ""
    advice = nearest or "use fewer or smaller tasks"
    return (
        f"protocol.tasks has {total} classes ({' + '.join(map(str, sizes))}), but {num_classes} are learned: {advice}, "
        "or set data.classes"
    )
