"""Data loading of image files: ResNet-18 on photographs at 224 pixels, decoded by two workers.

The photographs are synthetic: smooth shapes with noise, with the size in pixels and bytes of real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

from cscct.config import resolve
from cscct.data import Dataset, FileImages, Split
from cscct.data.augment import make_view
from cscct.data.batches import join
from cscct.data.registry import no_progress
from cscct.data.resized_copies import with_resized_copies
from cscct.learn.build import build_learner, build_stream
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.specs import TransformSpec
from parts import Clock, Listener, Size

WORKERS = 2
KINDS = {"500 x 375": (500, 375), "4000 x 3000": (4000, 3000)}  # as in ImageNet; as from phones


def photographs(folder: Path, width: int, height: int, count: int) -> list[Path]:
    folder.mkdir()
    paths = []
    for number in range(count):
        rng = np.random.default_rng(number)
        few = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        shapes = np.asarray(few.resize((width, height), Image.Resampling.BICUBIC))
        noise = rng.normal(0, 6, (height, width, 1)).astype(np.float32)
        paths.append(folder / f"{number}.jpg")
        Image.fromarray((shapes + noise).clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def as_dataset(paths: list[Path], classes: int) -> Dataset:
    labels = np.arange(len(paths)) % classes
    split = Split(FileImages(tuple(paths)), labels.astype(np.int64))
    return Dataset("photographs", tuple(map(str, range(classes))), split, split, channels=3)


def epoch(dataset: Dataset, size: Size, batch: int, side: int) -> tuple[float, float]:
    """Return the fraction of an epoch that training waits for batches, including the first one, and the time of the
    epoch relative to one with batches in memory, since decoding and training share the cores."""
    common: dict[str, Any] = {
        "protocol": {"base": 2, "step": 2},
        "train": {"epochs": 1, "batch_size": batch},
        "data": {"order": "natural", "transform": {"size": side}},
        "runtime": {"device": "cpu", "threads": size.threads, "workers": WORKERS},
    }
    settings = complete(resolve("lucir+cscct", "imagenet-subset", overrides=[common]), dataset)
    learner = build_learner(settings, dataset, build_stream(settings, dataset, warn=lambda _: None))
    learner.network.head.grow(learner.network.head.init_weights(2, torch.Generator().manual_seed(0)))
    from_files, ready, kept = Clock(), Clock(), list(learner._batches(*_first_epoch(learner)))
    batches = from_files.each("waiting", learner._batches)
    # Batches in memory (warm-up), then files, then batches in memory: the first steps of a network are slower.
    for clock, source in ((Clock(), lambda *_: iter(kept)), (from_files, batches), (ready, lambda *_: iter(kept))):
        learner._batches = source  # type: ignore[method-assign, assignment]
        clock.switch("other")
        clock.parts.clear()
        context = learner.context(learner.stream.tasks[0])
        learner._run_stage("train", learner.config.train, context, (Listener(), None, None))
        clock.switch("other")
    seconds = sum(from_files.parts.values())
    return from_files.parts["waiting"] / seconds, seconds / sum(ready.parts.values())


def _first_epoch(learner: Learner) -> tuple[Any, ...]:
    task = learner.stream.tasks[0]
    pool = join([(label, learner.stream.train[label]) for label in task.classes], [])
    return pool, learner.config.train, task, "train", 0, 0


def rate(dataset: Dataset, side: int, seconds: float, reduced: bool = True) -> float:
    """Return training images per second from files to batch without training. The files are in the page cache."""
    view = make_view(dataset.train.images, TransformSpec(size=side, reduced_decoding=reduced), WORKERS)
    indices = torch.arange(len(dataset.train))
    generator = torch.Generator().manual_seed(0)
    view.train(indices, generator)
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        view.train(indices, generator)
        done += len(indices)
    return done / (time.perf_counter() - started)


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    results: dict[str, Any] = {"waiting": {}, "from files / ready": {}, "images/s": {}}
    side, batch, steps, seconds = (32, 4, 1, 0.1) if size.tiny else (224, 32, 5, 2.0)
    with TemporaryDirectory() as folder:
        for name, (width, height) in KINDS.items():
            count = 4 if size.tiny else 64 if width < 1000 else 16
            paths = photographs(Path(folder) / name, width, height, count)
            dataset = as_dataset(paths, 4)
            copies = with_resized_copies(dataset, 256 * side // 224, Path(folder) / "copies", WORKERS, no_progress)
            results["images/s"][name] = {
                "in full": rate(dataset, side, seconds, reduced=False),
                "reduced where the crop allows": rate(dataset, side, seconds),
                "from copies": rate(copies, side, seconds),
            }
            # The task has two of the four classes, so twice the number of images; the same files are used repeatedly.
            many = as_dataset((paths * (2 * batch * steps))[: 2 * batch * steps], 4)
            results["waiting"][name], results["from files / ready"][name] = epoch(many, size, batch, side)
            rates = ", ".join(f"{how} {value:.0f}" for how, value in results["images/s"][name].items())
            slower = results["from files / ready"][name]
            say(f"{name}: training waits {results['waiting'][name]:.1%}, takes {slower:.2f} times; images/s {rates}")
    return results


def ratios(results: dict[str, Any]) -> dict[str, float]:
    waiting = {f"waiting for data, {name}": share for name, share in results["waiting"].items()}
    return waiting | {f"from files / ready, {name}": times for name, times in results["from files / ready"].items()}
