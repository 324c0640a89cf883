"""Which classes a run learns, in which order, and in how many tasks. Needs no data but the number of classes."""

from __future__ import annotations

from dataclasses import replace

from ..config import Settings
from ..data.tasks import class_order
from ..errors import UserError


def class_sequence(settings: Settings, num_classes: int) -> list[int]:
    """The classes of the dataset that the run learns, one after another."""
    wanted = settings.data.order
    order = class_order(settings.seed if wanted == "seed" else wanted, num_classes)
    if settings.data.classes and settings.data.classes > len(order):
        raise UserError(f"data.classes is {settings.data.classes}, but only {len(order)} classes are to be had.")
    return order[: settings.data.classes]


def with_protocol(settings: Settings, num_classes: int) -> Settings:
    """B and C filled in where they were left open."""
    classes = len(class_sequence(settings, num_classes))
    base = settings.protocol.base or (classes + 1) // 2
    step = settings.protocol.step or max(1, (classes - base + 4) // 5)
    return settings.model_copy(update={"protocol": replace(settings.protocol, base=base, step=step)})
