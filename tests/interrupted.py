"""Small runs that are stopped or killed and continued, shared by the tests of that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from conftest import Silent, settings_for, without_timings
from cscct.config import Settings
from cscct.learn.protocol import complete
from cscct.methods import EXTENSIONS, METHODS
from cscct.runs.exemplars import load_exemplars
from cscct.runs.first_tasks import FirstTaskCache
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.studies.datasets import load_dataset

BASES = ("icarl", "lucir", "podnet")
SMALL = ("train.epochs=2", "data.train_per_class=24", "data.classes=6", "protocol.base=2", "runtime.threads=1")
EVERY_STEP = "checkpoint.minutes=0"


def with_addon(base: str) -> str:
    """The name of a method with the losses of the paper, if it trains and compares features of equal width."""
    method = METHODS[base]
    return base + ("+ct" if method.grows else "+cscct" if method.trains else "")


def small_sets(base: str) -> tuple[str, ...]:
    """Overrides that make a run of a method small."""
    settings = METHODS[base].settings
    stages = [*(f"stages.{stage}" for stage in settings.get("stages", {})), *({"finetune"} & set(settings))]
    sampled = [name for name in settings.get("extension", {}) if "samples" in EXTENSIONS[name].__dataclass_fields__]
    return (
        *(SMALL if METHODS[base].trains else SMALL[1:]),
        *(f"{stage}.epochs=2" for stage in stages),
        *(f"extension.{name}.samples=6" for name in sampled),
    )


def small(base: str, *sets: str) -> Settings:
    settings = settings_for(with_addon(base), "digits", *small_sets(base), *sets)
    return complete(settings, load_dataset(settings, None, print))


def go(
    folder: Path, settings: Settings, stop: Callable[[], bool] = lambda: False, cache: FirstTaskCache | None = None
) -> tuple[dict[str, Any], Silent]:
    listener = Silent()
    dataset = load_dataset(settings, None, print)
    run = RunFolder(folder)
    return execute(settings, dataset, run, listener, listener.warnings.append, cache, stop), listener


def history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
    return [{k: v for k, v in json.loads(line).items() if k != "images_per_second"} for line in lines]


def same(expected: Path, actual: Path, *, trained: bool = True) -> None:
    """Check that two runs are identical. The result contains the hash of the weights. trained: also the first task."""
    results = [json.loads((folder / "result.json").read_text()) for folder in (expected, actual)]
    assert results[0]["status"] == "finished"
    assert without_timings(results[0]) == without_timings(results[1])
    assert [line for line in history(expected) if trained or line["task"]] == history(actual)
    for path in sorted((expected / "tasks").iterdir()):
        assert path.read_bytes() == (actual / "tasks" / path.name).read_bytes()
    states = [load_exemplars(folder).extension for folder in (expected, actual)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not (actual / "checkpoints").exists()


class After:
    """Requests a stop at the n-th call."""

    def __init__(self, steps: int):
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0
