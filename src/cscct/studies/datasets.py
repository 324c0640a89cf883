"""The datasets of a study: each is read once, or given as an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Settings
from ..data.registry import DATASETS, LoadRequest, Progress, no_progress

if TYPE_CHECKING:
    from ..data import Dataset


class DatasetCache:
    """Loads each dataset once for all the runs that read it the same way.

    given: datasets in memory, by the name that the settings call them.
    """

    def __init__(
        self,
        data_dir: Path | None,
        warn: Callable[[str], None],
        progress: Progress = no_progress,
        given: Mapping[str, Dataset] | None = None,
    ):
        self.data_dir, self.warn, self.progress = data_dir, warn, progress
        self.given = dict(given or {})
        self.loaded: dict[tuple[str | bool | float | None, ...], Dataset] = {}
        self.fingerprints: dict[int, str] = {}

    def of(self, settings: Settings) -> Dataset:
        """The dataset of a run."""
        if settings.dataset in self.given:
            return self.given[settings.dataset]
        data = settings.data
        seed = settings.seed if settings.dataset == "folder" else 0  # the split of a folder is drawn from the seed
        key = (settings.dataset, data.skip_bad_images, data.test_fraction, data.cache, seed)
        if key not in self.loaded:
            from ..learn.dataset import load_dataset  # imports torch, which planning does not need

            self.loaded[key] = load_dataset(settings, self.data_dir, self.warn, self.progress)
        return self.loaded[key]

    def fingerprint(self, settings: Settings) -> str | None:
        """Of the dataset of a run; None for image files, which would all have to be read."""
        kind = DATASETS.get(settings.dataset)
        if settings.dataset not in self.given and (kind is None or kind.list_classes is not None):
            return None
        dataset = self.of(settings)
        if id(dataset) not in self.fingerprints:
            self.fingerprints[id(dataset)] = dataset.fingerprint()
        return self.fingerprints[id(dataset)]

    def complete(self, settings: Settings) -> Settings:
        """With what depends on the data or the machine filled in."""
        from ..learn.protocol import complete

        return complete(settings, self.of(settings))

    def count_classes(self, settings: Settings) -> int:
        """How many classes the dataset of a run has; image files are listed for this, not read."""
        if settings.dataset in self.given:
            return len(self.given[settings.dataset].class_names)
        kind = DATASETS[settings.dataset]
        if kind.num_classes is not None:
            return kind.num_classes
        if kind.list_classes is not None:
            data = settings.data
            request = LoadRequest(self.data_dir, data.skip_bad_images, data.test_fraction, settings.seed, self.warn)
            return len(kind.list_classes(request))
        return len(self.of(settings).class_names)

    def check(self, settings: Settings) -> None:
        """Refuses what is not there, before any run begins. Image files are left to the runs: reading them all takes
        long, and each run does it anyway."""
        kind = DATASETS.get(settings.dataset)
        if kind is not None and kind.list_classes is not None:
            self.count_classes(settings)
        else:
            self.of(settings)
