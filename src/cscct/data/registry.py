"""Datasets by name: what there is, how each is loaded, and where its files are looked for.

Importing this module imports neither torch nor numpy, so that `--help` and `list` start at once.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from .base import Dataset


Progress = Callable[[str, int, int], None]  # what is being done, how many of them, of how many


def no_progress(what: str, done: int, total: int) -> None:
    """The default: nothing is shown."""


@dataclass(frozen=True)
class LoadRequest:
    """What a loader may ask about the wishes of the user; `warn` takes one sentence."""

    data_dir: Path | None  # None: default_data_dir()
    skip_bad_images: bool
    test_fraction: float  # only where the files come without a test part
    seed: int
    warn: Callable[[str], None]
    progress: Progress = no_progress


@dataclass(frozen=True)
class Extent:
    """About how large a dataset is, for planning before it is read."""

    train: int  # images a class
    test: int
    size: int  # pixels a side


@dataclass(frozen=True)
class DatasetKind:
    name: str
    summary: str
    num_classes: int | None  # None: known only from the files
    load: Callable[[LoadRequest], Dataset]
    fetchable: bool
    extent: Extent | None = None
    list_classes: Callable[[LoadRequest], Sequence[str]] | None = None  # where they can be told without reading images


DATASETS: dict[str, DatasetKind] = {}


def register(kind: DatasetKind) -> None:
    """Make a dataset known by its name; a taken name is refused, so that no plugin hides another."""
    if kind.name in DATASETS:
        raise UserError(f"There is already a dataset called {kind.name!r}: give the new one another name.")
    DATASETS[kind.name] = kind


def find(name: str) -> DatasetKind:
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UserError(f"There is no dataset called {name!r}{hint} The datasets are: {', '.join(sorted(DATASETS))}.")


def load(name: str, request: LoadRequest) -> Dataset:
    from .checks import check_dataset

    dataset = find(name).load(request)
    check_dataset(dataset)
    return dataset


def default_data_dir() -> Path:
    """$CSCCT_DATA if it is set, else the user's cache folder."""
    if named := os.environ.get("CSCCT_DATA"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("cscct"))


def locate(data_dir: Path | None, *subfolder_names: str) -> list[Path]:
    """Where to look for a dataset, in order: people give its own folder or the folder above it."""
    base = data_dir.expanduser() if data_dir else default_data_dir()
    return [base, *(base / name for name in subfolder_names)]


def listing(names: Sequence[str], most: int = 5) -> str:
    """The first few names for a message, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _built_in(module: str, function: str) -> Callable[[LoadRequest], Any]:
    """A function of `datasets/`, imported when it is called."""

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
