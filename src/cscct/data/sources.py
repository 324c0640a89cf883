"""Where datasets come from: a registry by name, and the checks every loaded dataset must pass.

Importing this module imports neither torch nor numpy, so that `--help` and `list` start at once.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cscct.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cscct.data.base import Dataset, Split


Progress = Callable[[str, int, int], None]  # what is being done, how many of them, of how many


def unseen(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class LoadRequest:
    """What a loader may ask about the wishes of the user; `warn` takes one sentence."""

    data_dir: Path | None  # None: default_data_dir()
    skip_bad_images: bool
    test_fraction: float  # only where the files come without a test part
    seed: int
    warn: Callable[[str], None]
    progress: Progress = unseen


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
    dataset = find(name).load(request)
    _check(dataset)
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


def _check(dataset: Dataset) -> None:
    train = _images_per_class(dataset, dataset.train, "training")
    test = _images_per_class(dataset, dataset.test, "test")
    for counts, what in ((train, "training"), (test, "test")):
        empty = [name for name, count in zip(dataset.class_names, counts, strict=True) if not count]
        if empty:
            who = f"class {empty[0]} has" if len(empty) == 1 else f"classes {listing(empty)} have"
            raise UserError(
                f"In dataset {dataset.name!r}, {who} no {what} images: "
                "every class needs at least one training and one test image. Add some, or remove the class."
            )


def _images_per_class(dataset: Dataset, split: Split, what: str) -> NDArray[np.int64]:
    import numpy as np

    classes = len(dataset.class_names)
    if len(split.images) != len(split.labels):
        raise UserError(
            f"Dataset {dataset.name!r} has {len(split.images)} {what} images but {len(split.labels)} labels: "
            "its loader must give one label to each image."
        )
    outside = split.labels[(split.labels < 0) | (split.labels >= classes)]
    if len(outside):
        raise UserError(
            f"Dataset {dataset.name!r} has a {what} image with label {outside[0]}, but {classes} classes: "
            f"labels go from 0 to {classes - 1}."
        )
    return np.bincount(split.labels, minlength=classes).astype(np.int64)


def _load_digits(request: LoadRequest) -> Dataset:
    """Each fifth image of a class is for testing, whatever the seed, so that runs can be compared."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    from cscct.data.base import ArrayImages, Dataset, Split

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8), from 0..16
    labels = bunch.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[4::5]] = True

    def part(mask: NDArray[np.bool_]) -> Split:
        return Split(ArrayImages(torch.from_numpy(pixels[mask])), labels[mask])

    names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", names, part(~is_test), part(is_test), channels=1)


def _load_cifar100(request: LoadRequest) -> Dataset:
    from cscct.data import cifar

    return cifar.load_cifar100(request)


def _load_folder(request: LoadRequest) -> Dataset:
    from cscct.data import folders

    return folders.load_folder(request)


def _load_imagenet_subset(request: LoadRequest) -> Dataset:
    from cscct.data import folders

    return folders.load_imagenet_subset(request)


register(
    DatasetKind(
        "digits",
        "1,797 handwritten digits, 8x8 grey; comes with scikit-learn",
        10,
        _load_digits,
        fetchable=False,
        extent=Extent(144, 36, 8),
    )
)
register(
    DatasetKind(
        "cifar100",
        "60,000 photographs, 32x32 colour, 100 classes",
        100,
        _load_cifar100,
        fetchable=True,
        extent=Extent(500, 100, 32),
    )
)
register(
    DatasetKind(
        "imagenet-subset",
        "100 classes of ImageNet (ILSVRC 2012), from your own copy",
        100,
        _load_imagenet_subset,
        fetchable=False,
        extent=Extent(1290, 50, 224),
    )
)
register(
    DatasetKind("folder", "your own images: one folder per class, in --data-dir", None, _load_folder, fetchable=False)
)
