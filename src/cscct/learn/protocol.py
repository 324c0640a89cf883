"""Which classes a run learns, in which order, and in how many tasks; and what else is decided when a run begins."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config import Settings
from ..data.tasks import class_order
from ..errors import UserError

if TYPE_CHECKING:
    from ..data import Dataset


def class_sequence(settings: Settings, num_classes: int) -> list[int]:
    """The classes of the dataset that the run learns, one after another."""
    wanted = settings.data.order
    order = class_order(settings.seed if wanted == "seed" else wanted, num_classes)
    if settings.data.classes and settings.data.classes > len(order):
        raise UserError(f"data.classes is {settings.data.classes}, but only {len(order)} classes are available.")
    return order[: settings.data.classes]


def with_protocol(settings: Settings, num_classes: int) -> Settings:
    """B and C filled in where they were left open."""
    classes = len(class_sequence(settings, num_classes))
    base = settings.protocol.base or (classes + 1) // 2
    step = settings.protocol.step or max(1, (classes - base + 4) // 5)
    return settings.model_copy(update={"protocol": replace(settings.protocol, base=base, step=step)})


def complete(settings: Settings, dataset: Dataset) -> Settings:
    """Fill in what depends on the data or the machine, so that the recorded config leaves nothing open."""
    from .device import choose_device, choose_threads  # which need torch; plans do without

    runtime = replace(
        settings.runtime,
        device=choose_device(settings.runtime.device),
        threads=choose_threads(settings.runtime.threads),
    )
    return with_protocol(settings, len(dataset.class_names)).model_copy(update={"runtime": runtime})


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
