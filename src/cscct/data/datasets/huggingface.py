"""Datasets of Hugging Face: in memory, or in a folder that `save_to_disk` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UserError, install_hint
from ..base import Dataset
from .arrays import dataset_from_torch

TEST_SPLITS = ("test", "validation", "val", "valid")


def dataset_from_huggingface(
    source: Any, class_names: Sequence[str] | None, keys: tuple[str | None, str | None], test: str | None
) -> Dataset:
    """See `Dataset.from_huggingface`. keys: of image and label in the items."""
    splits = _read(source) if isinstance(source, str | Path) else source
    if not isinstance(splits, Mapping) or "train" not in splits:
        present = ", ".join(map(repr, splits)) if isinstance(splits, Mapping) else "a single dataset"
        raise UserError(f"The source must have the splits 'train' and 'test', and it has {present}.")
    candidates = TEST_SPLITS if test is None else (test,)
    name = next((split for split in candidates if split in splits), None)
    if name is None:
        raise UserError(
            f"There is no split {' or '.join(map(repr, candidates))}, only {', '.join(map(repr, splits))}: name the "
            "split with the test images with test=."
        )
    return dataset_from_torch(splits["train"], splits[name], class_names, keys)


def _read(path: str | Path) -> Any:
    if not Path(path).is_dir():
        raise UserError(
            f"There is no folder {path}. Nothing is downloaded here: load the dataset with datasets.load_dataset and "
            "pass it, or the folder to which you saved it with save_to_disk."
        )
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise UserError(f"{path} needs the package datasets, which is not installed: {install_hint('hf')}.") from error
    try:
        return load_from_disk(str(path))
    except Exception as error:  # the library raises errors of many types
        raise UserError(f"{path} cannot be read as a dataset of Hugging Face: {str(error).rstrip('.')}.") from error
