"""Small plans on digits for the tests of studies."""

from collections.abc import Sequence
from pathlib import Path

from conftest import settings_for
from cscct.runs.folder import RunFolder
from cscct.studies.datasets import DatasetCache
from cscct.studies.plan import PlannedRun, complete_plan

QUICK = ("train.epochs=1", "data.train_per_class=20", "runtime.threads=1", "checkpoint.minutes=0")


def small_plan(folder: Path, *methods: str, sets: Sequence[str] = (), seeds: Sequence[int] = (1,)) -> list[PlannedRun]:
    """Complete runs in folders `METHOD-seedN`."""
    plan = [
        PlannedRun(
            method,
            settings_for(method, "digits", *QUICK, *sets, f"seed={seed}"),
            RunFolder(folder / f"{method}-seed{seed}"),
        )
        for method in methods
        for seed in seeds
    ]
    return complete_plan(plan, DatasetCache(None, print), 1)
