"""Datasets, class orders, tasks and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports

if TYPE_CHECKING:
    from .base import ArrayImages, Dataset, FileImages, Split
    from .stream import Stream, make_stream
    from .tasks import class_order, split_tasks

__all__ = [
    "ArrayImages",
    "Dataset",
    "FileImages",
    "Split",
    "Stream",
    "class_order",
    "make_stream",
    "split_tasks",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ArrayImages": "base",
        "Dataset": "base",
        "FileImages": "base",
        "Split": "base",
        "Stream": "stream",
        "make_stream": "stream",
        "class_order": "tasks",
        "split_tasks": "tasks",
    },
)
