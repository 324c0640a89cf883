"""Loading the datasets of runs; those of a study are loaded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Settings
from ..data.registry import LoadRequest, Progress, find, kind_of, load, no_progress
from ..errors import Warn

if TYPE_CHECKING:
    from ..data import Dataset


def load_dataset(settings: Settings, data_dir: Path | None, warn: Warn, progress: Progress = no_progress) -> Dataset:
    """Load the dataset that the settings name.

    Args:
        settings: Settings of the run.
        data_dir: Folder with datasets, or None for the default folder.
        warn: Called with each warning.
        progress: Called with a description, the number of items done and the total.

    Returns:
        The dataset, with resized copies of its images if `data.resize_cache_px` is set.

    Raises:
        UserError: If the dataset is unknown, missing or damaged.
    """
    request = LoadRequest(
        data_dir=data_dir,
        skip_bad_images=settings.data.skip_bad_images,
        test_fraction=settings.data.test_fraction,
        seed=settings.seed,
        warn=warn,
        progress=progress,
    )
    dataset = load(settings.dataset, request)
    side = settings.data.resize_cache_px
    if side is None:
        return dataset
    from ..data.registry import user_cache_dir
    from ..data.resized_copies import with_resized_copies

    folder = user_cache_dir() / "copies"
    return with_resized_copies(dataset, side, folder, settings.runtime.workers, progress)


class DatasetCache:
    """Loads each dataset once for all runs that read it in the same way.

    Args:
        data_dir: Folder of the data, or None for the default.
        warn: Called with each warning.
        progress: Called while images are copied.
        in_memory: Datasets that need not be loaded, by the name in the settings.
    """

    def __init__(
        self,
        data_dir: Path | None,
        warn: Warn,
        progress: Progress = no_progress,
        in_memory: Mapping[str, Dataset] | None = None,
    ):
        self.data_dir, self.warn, self.progress = data_dir, warn, progress
        self.in_memory = dict(in_memory or {})
        self._loaded: dict[tuple[str | bool | float | None, ...], Dataset] = {}
        self._fingerprints: dict[int, str] = {}

    def of(self, settings: Settings) -> Dataset:
        """Return the dataset of a run."""
        if settings.dataset in self.in_memory:
            return self.in_memory[settings.dataset]
        data = settings.data
        seed = settings.seed if settings.dataset == "folder" else 0  # the split of a folder depends on the seed
        key = (settings.dataset, data.skip_bad_images, data.test_fraction, data.resize_cache_px, seed)
        if key not in self._loaded:
            self._loaded[key] = load_dataset(settings, self.data_dir, self.warn, self.progress)
        return self._loaded[key]

    def fingerprint(self, settings: Settings) -> str | None:
        """Return the fingerprint of a run's dataset, or None for image files, which would all have to be read."""
        kind = kind_of(settings.dataset)
        if settings.dataset not in self.in_memory and (kind is None or kind.list_classes is not None):
            return None
        dataset = self.of(settings)
        if id(dataset) not in self._fingerprints:
            self._fingerprints[id(dataset)] = dataset.fingerprint()
        return self._fingerprints[id(dataset)]

    def complete(self, settings: Settings) -> Settings:
        """Return the settings with everything filled in that depends on the data or the machine."""
        from ..learn.protocol import complete

        return complete(settings, self.of(settings))

    def count_classes(self, settings: Settings) -> int:
        """Return the number of classes of a run's dataset. Image files are listed, not read."""
        if settings.dataset in self.in_memory:
            return len(self.in_memory[settings.dataset].class_names)
        kind = find(settings.dataset)
        if kind.num_classes is not None:
            return kind.num_classes
        if kind.list_classes is not None:
            data = settings.data
            request = LoadRequest(self.data_dir, data.skip_bad_images, data.test_fraction, settings.seed, self.warn)
            return len(kind.list_classes(request))
        return len(self.of(settings).class_names)

    def check(self, settings: Settings) -> None:
        """Raise a `UserError` if the dataset of a run is missing or does not fit its settings.

        Image files are only listed: each run reads them.
        """
        kind = kind_of(settings.dataset)
        if kind is not None and kind.list_classes is not None:
            self.count_classes(settings)
        else:  # another machine may execute the run, so its device is not checked
            self.complete(settings.model_copy(update={"runtime": replace(settings.runtime, device="auto")}))
