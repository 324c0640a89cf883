"""What all tests share: one thread each, small runs, and the command line as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cscct.config import Settings, resolve
from cscct.learn.build import build_learner, build_stream
from cscct.learn.dataset import load_dataset
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.runs.first_tasks import FirstTaskCache
from cscct.runs.folder import RunFolder
from cscct.runs.listeners import Listener
from cscct.runs.runner import execute
from cscct.yamltext import parse_override

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: begun last, they would keep one worker busy while the others have nothing left."""
    items.sort(key=lambda item: "one_cell" not in item.name and "bench_runs" not in item.name)


class Silent(Listener):
    """A listener that remembers what it heard."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.parts: list[dict[str, float]] = []
        self.skipped_images = 0

    def step(self, task: Any, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        self.parts.append(parts)

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs.append(record)

    def run_started(self, settings: Settings, tasks: Any, images: int) -> None:
        self.images = images

    def skipped(self, images: int) -> None:
        self.skipped_images += images

    def task_finished(self, entry: Any) -> None:
        pass

    def run_finished(self, result: Any, folder: Path) -> None:
        pass


def settings_for(method: str, dataset: str = "digits", *sets: str, recipe: str | None = None) -> Settings:
    return resolve(method, dataset, recipe=recipe, overrides=[parse_override(text) for text in sets])


def run_quietly(
    folder: Path, method: str, *sets: str, first_tasks: Path | None = None, listener: Silent | None = None
) -> dict[str, Any]:
    """One run on digits, one thread, in this process."""
    listener = listener or Silent()
    settings = settings_for(method, "digits", "runtime.threads=1", *sets)
    dataset = load_dataset(settings, None, listener.warnings.append)
    shared = FirstTaskCache(first_tasks) if first_tasks else None
    warn = listener.warnings.append
    return execute(complete(settings, dataset), dataset, RunFolder(folder), listener, warn, shared)


def learner_for(method: str, *sets: str, dataset: str = "digits") -> Learner:
    settings = settings_for(method, dataset, "runtime.threads=1", *sets)
    loaded = load_dataset(settings, None, lambda _: None)
    settings = complete(settings, loaded)
    return build_learner(settings, loaded, build_stream(settings, loaded, lambda _: None))


def without_timings(result: Any) -> Any:
    """What must be the same twice."""
    if isinstance(result, dict):
        return {k: without_timings(v) for k, v in result.items() if k not in ("seconds", "environment")}
    return [without_timings(v) for v in result] if isinstance(result, list) else result


@pytest.fixture
def cscct(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The installed command, in an empty folder."""

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        home = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **env}
        command = [sys.executable, "-m", "cscct", *words]
        return subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True, timeout=300)

    return call
