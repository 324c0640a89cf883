"""Datasets of Hugging Face: in memory, in a folder that `save_to_disk` wrote, or fetched from the hub on request."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UserError, install_hint
from ...storage import temporary_path
from ..base import Dataset
from ..registry import HUGGINGFACE, LoadRequest, locate
from .arrays import dataset_from_torch

FOLDER = "huggingface"  # of fetched datasets, in the data folder
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
    library = _library(path)
    try:
        return library.load_from_disk(str(path))
    except Exception as error:  # the library raises errors of many types
        raise UserError(f"{path} cannot be read as a dataset of Hugging Face: {str(error).rstrip('.')}.") from error


def load_huggingface(source: str, request: LoadRequest) -> Dataset:
    """Load `hf:SOURCE`. Nothing is downloaded.

    Args:
        source: Folder that `save_to_disk` wrote, relative to the current or the data folder; or the name of a dataset
            that `fetch_huggingface` downloaded.
        request: Options of the loader.

    Raises:
        UserError: If there is no such dataset, or it cannot be read.
    """
    folder = locate(request.data_dir)[0]
    places = [Path(source).expanduser(), folder / source, folder / FOLDER / source]
    place = next((path for path in places if path.is_dir()), None)
    if place is None:
        raise UserError(
            f"There is no folder {places[0]}, and {source} is not in {folder / FOLDER}. Download a dataset of the "
            f"Hugging Face hub with `cscct data fetch {HUGGINGFACE}{source}`, or name a folder that "
            "datasets.save_to_disk wrote."
        )
    return replace(dataset_from_huggingface(place, None, (None, None), None), name=f"{HUGGINGFACE}{source}")


def fetch_huggingface(name: str, data_dir: Path | None) -> Path:
    """Download a dataset of the Hugging Face hub to the data folder. A complete dataset is not downloaded again.

    Args:
        name: `hf:` and the name on the hub.
        data_dir: Folder with datasets; None for the default folder.

    Returns:
        Folder of the dataset.

    Raises:
        UserError: If the dataset cannot be downloaded.
    """
    source = name.removeprefix(HUGGINGFACE)
    library = _library(name)
    if source.startswith(("/", "~", ".")) or ".." in Path(source).parts:
        raise UserError(
            f"{source} is not a name on the Hugging Face hub, such as user/dataset: a folder needs no fetch."
        )
    target = locate(data_dir)[0] / FOLDER / source
    if target.is_dir():
        return target
    unfinished = temporary_path(target)
    shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process
    try:
        library.load_dataset(source).save_to_disk(str(unfinished))
    except Exception as error:
        raise UserError(f"{name} cannot be downloaded: {str(error).rstrip('.')}.") from error
    unfinished.rename(target)
    return target


def _library(source: str | Path) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{source} needs the package datasets, which is not installed: {install_hint('hf')}."
        ) from error
    return datasets
