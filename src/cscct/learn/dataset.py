"""The dataset that settings name, read as they say."""

from __future__ import annotations

from pathlib import Path

from ..config import Settings
from ..data import Dataset
from ..data.registry import LoadRequest, Progress, load, no_progress
from ..errors import Warn


def load_dataset(settings: Settings, data_dir: Path | None, warn: Warn, progress: Progress = no_progress) -> Dataset:
    request = LoadRequest(
        data_dir=data_dir,
        skip_bad_images=settings.data.skip_bad_images,
        test_fraction=settings.data.test_fraction,
        seed=settings.seed,
        warn=warn,
        progress=progress,
    )
    dataset = load(settings.dataset, request)
    if settings.data.cache is None:
        return dataset
    return _with_copies(dataset, settings.data.cache, settings.runtime.workers, progress)


def _with_copies(dataset: Dataset, side: int, workers: int, progress: Progress) -> Dataset:
    import pooch

    from ..data.cache import with_copies

    return with_copies(dataset, side, Path(pooch.os_cache("cscct")) / "copies", workers, progress)
