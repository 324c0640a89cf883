"""Datasets, class orders, tasks and batches."""

from .base import ArrayImages, Dataset, FileImages, Split
from .stream import Stream, make_stream
from .tasks import class_order, split_tasks

__all__ = ["ArrayImages", "Dataset", "FileImages", "Split", "Stream", "class_order", "make_stream", "split_tasks"]
