"""Registry of datasets, and the location of their files.

Importing this module imports neither torch nor numpy, so that `--help` and `list` start quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..text import suggest

if TYPE_CHECKING:
    from .base import Dataset


Progress = Callable[[str, int, int], None]  # description, items done, total


def no_progress(description: str, done: int, total: int) -> None:
    """Ignore progress. Default of functions that report it."""


@dataclass(frozen=True)
class LoadRequest:
    """Options of a dataset loader.

    Attributes:
        data_dir: Folder with datasets; None for `default_data_dir()`.
        skip_bad_images: Whether unreadable images are skipped with a warning.
        test_fraction: Fraction of test images, for files without a test split.
        seed: Seed of random splits.
        warn: Called with each warning.
        progress: Called with a description, the number of items done and the total.
    """

    data_dir: Path | None
    skip_bad_images: bool
    test_fraction: float
    seed: int
    warn: Callable[[str], None]
    progress: Progress = no_progress


@dataclass(frozen=True)
class Extent:
    """Approximate size of a dataset, for planning before it is read.

    Attributes:
        train: Training images per class.
        test: Test images per class.
        size: Side of the images in pixels.
    """

    train: int
    test: int
    size: int


@dataclass(frozen=True)
class DatasetKind:
    """Registered dataset.

    Attributes:
        name: Name for `dataset`.
        summary: Description in one line.
        num_classes: Number of classes; None if it depends on the files.
        load: Loader.
        fetchable: Whether `cscct data fetch` can download it.
        extent: Approximate size, if known.
        list_classes: Function that returns the class names without reading images.
    """

    name: str
    summary: str
    num_classes: int | None
    load: Callable[[LoadRequest], Dataset]
    fetchable: bool
    extent: Extent | None = None
    list_classes: Callable[[LoadRequest], Sequence[str]] | None = None


DATASETS: dict[str, DatasetKind] = {}
HUGGINGFACE = "hf:"  # prefix of datasets of Hugging Face


def register(kind: DatasetKind) -> None:
    """Register a dataset.

    Args:
        kind: Dataset.

    Raises:
        UserError: If the name is already registered.
    """
    if kind.name in DATASETS:
        raise UserError(f"The dataset {kind.name!r} is already registered: use another name.")
    DATASETS[kind.name] = kind


def find(name: str) -> DatasetKind:
    """Return a registered dataset.

    Args:
        name: Name of the dataset.

    Raises:
        UserError: If the name is unknown.
    """
    if kind := kind_of(name):
        return kind
    raise UserError(
        f"Unknown dataset {name!r}{suggest(name, DATASETS)}. The datasets are: {', '.join(sorted(DATASETS))}, and "
        f"{HUGGINGFACE}NAME."
    )


def kind_of(name: str) -> DatasetKind | None:
    """Return a dataset by name, or None if it is unknown.

    Args:
        name: Name of a registered dataset, or `hf:` followed by a folder that `datasets.save_to_disk` wrote or by a
            name on the Hugging Face hub.
    """
    source = name.removeprefix(HUGGINGFACE)
    if name in DATASETS or source in (name, ""):
        return DATASETS.get(name)

    def load_source(request: LoadRequest) -> Dataset:
        from .datasets.huggingface import load_huggingface

        return load_huggingface(source, request)

    return DatasetKind(name, f"dataset {source} of Hugging Face", None, load_source, fetchable=True)


def load(name: str, request: LoadRequest) -> Dataset:
    """Load and check a dataset.

    Args:
        name: Name of the dataset.
        request: Options of the loader.

    Raises:
        UserError: If the dataset is unknown, missing, damaged or invalid.
    """
    from .validation import check_dataset

    dataset = find(name).load(request)
    check_dataset(dataset)
    return dataset


def default_data_dir() -> Path:
    """Return $CSCCT_DATA if it is set, otherwise the cache folder of the user."""
    if named := os.environ.get("CSCCT_DATA"):
        return Path(named).expanduser()
    return user_cache_dir()


def user_cache_dir() -> Path:
    """Return the cache folder of the user for this package, which need not exist."""
    import pooch

    return Path(pooch.os_cache("cscct"))


def locate(data_dir: Path | None, *subfolder_names: str) -> list[Path]:
    """Return the folders to search for a dataset, in order.

    Args:
        data_dir: Folder of the dataset or its parent; None for `default_data_dir()`.
        *subfolder_names: Names of the folder of the dataset.
    """
    base = data_dir.expanduser() if data_dir else default_data_dir()
    return [base, *(base / name for name in subfolder_names)]


def listing(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, and the number of the others, for a message.

    Args:
        names: Names.
        limit: Maximum number of names.
    """
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


def _built_in(module: str, function: str) -> Callable[[LoadRequest], Any]:
    """Return a function of `datasets/` that is imported when it is called."""

    def call(request: LoadRequest) -> Any:
        return getattr(import_module(f".datasets.{module}", __package__), function)(request)

    return call


register(
    DatasetKind(
        "digits",
        "1,797 handwritten digits, 8x8 grey; comes with scikit-learn",
        10,
        _built_in("digits", "load_digits"),
        fetchable=False,
        extent=Extent(144, 36, 8),
    )
)
register(
    DatasetKind(
        "cifar100",
        "60,000 photographs, 32x32 colour, 100 classes",
        100,
        _built_in("cifar", "load_cifar100"),
        fetchable=True,
        extent=Extent(500, 100, 32),
    )
)
register(
    DatasetKind(
        "cifar10",
        "60,000 photographs, 32x32 colour, 10 classes",
        10,
        _built_in("cifar", "load_cifar10"),
        fetchable=True,
        extent=Extent(5000, 1000, 32),
    )
)
register(
    DatasetKind(
        "imagenet-subset",
        "100 classes of ImageNet (ILSVRC 2012), from your own copy",
        100,
        _built_in("folders", "load_imagenet_subset"),
        fetchable=False,
        extent=Extent(1290, 50, 224),
    )
)
register(
    DatasetKind(
        "tiny-imagenet",
        "110,000 photographs, 64x64 colour, 200 classes of ImageNet, from your own copy of tiny-imagenet-200",
        None,
        _built_in("listed", "load_tiny_imagenet"),
        fetchable=False,
        extent=Extent(500, 50, 64),
        list_classes=_built_in("listed", "tiny_imagenet_classes"),
    )
)
register(
    DatasetKind(
        "cub200",
        "11,788 photographs of 200 bird species, from your own copy of CUB_200_2011",
        None,
        _built_in("listed", "load_cub200"),
        fetchable=False,
        extent=Extent(30, 29, 224),
        list_classes=_built_in("listed", "cub200_classes"),
    )
)
register(
    DatasetKind(
        "folder",
        "your own images: one folder per class, in --data-dir",
        None,
        _built_in("folders", "load_folder"),
        fetchable=False,
        list_classes=_built_in("folders", "folder_classes"),
    )
)
register(
    DatasetKind(
        "arrays",
        "images in memory: a cscct.Dataset in Python, or a file that cscct.save_arrays wrote, in --data-dir",
        None,
        _built_in("arrays", "load_arrays"),
        fetchable=False,
    )
)
