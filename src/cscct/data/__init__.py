"""Datasets, class orders, tasks and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

_HOME = {
    "ArrayImages": "base",
    "Dataset": "base",
    "FileImages": "base",
    "Split": "base",
    "Stream": "stream",
    "make_stream": "stream",
    "class_order": "tasks",
    "split_tasks": "tasks",
}


def __getattr__(name: str) -> Any:
    """torch is imported when something that needs it is asked for: listing the datasets is quick."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)
