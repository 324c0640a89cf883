"""The stream: an order of the classes, cut into tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UserError
from ..structs import Task
from .orders import PODNET_ORDERS


def class_order(name_or_seed: str | int | Sequence[int], num_classes: int) -> list[int]:
    """The classes in order of arrival.

    `seed-1993` is the order of iCaRL's, LUCIR's and CSCCT's released code, `podnet-1` to `podnet-3` those of
    PODNet's (100 classes only), `natural` the dataset's own, an int a permutation drawn from that seed, and a list
    is checked and taken as it is.
    """
    if isinstance(name_or_seed, int):
        if not 0 <= name_or_seed < 2**32:
            raise UserError(
                f"A seed for the class order must lie between 0 and {2**32 - 1}, and {name_or_seed} does not."
            )
        return [int(c) for c in np.random.RandomState(name_or_seed).permutation(num_classes)]
    if not isinstance(name_or_seed, str):
        order = list(name_or_seed)
        if len(set(order)) != len(order) or not set(order) <= set(range(num_classes)) or not order:
            raise UserError(f"A class order must name different classes from 0 to {num_classes - 1}.")
        return order
    if name_or_seed == "natural":
        return list(range(num_classes))
    if name_or_seed == "seed-1993":
        return class_order(1993, num_classes)
    if name_or_seed in PODNET_ORDERS:
        if num_classes != 100:
            raise UserError(f"The class order {name_or_seed} is one of 100 classes; this dataset has {num_classes}.")
        return list(PODNET_ORDERS[name_or_seed])
    raise UserError(
        f"There is no class order {name_or_seed!r}; choose seed-1993, podnet-1, podnet-2, podnet-3, natural, seed, "
        "a whole number or a list of classes."
    )


def split_tasks(num_classes: int, base: int, step: int) -> list[Task]:
    """`base` classes first, then `step` at a time; the last task takes what is left."""
    problems = [
        f"{name} is {value}, and must be between 1 and the {num_classes} classes there are"
        for name, value in (("B (protocol.base)", base), ("C (protocol.step)", step))
        if not 1 <= value <= num_classes
    ]
    if problems:
        raise UserError("; ".join(problems) + ".")
    tasks: list[Task] = []
    seen = 0
    while seen < num_classes:
        size = min(step if tasks else base, num_classes - seen)
        tasks.append(Task(index=len(tasks), n_old=seen, n_new=size))
        seen += size
    return tasks
