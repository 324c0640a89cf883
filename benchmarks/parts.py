"""Shared parts of the benchmarks: data, learners after the first task, and a clock."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from cscct.config import Settings, resolve
from cscct.data import ArrayImages, Dataset, Split
from cscct.learn.build import build_learner, build_stream
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.runs import listeners
from cscct.structs import Batch

T = TypeVar("T")
OLD, NEW = 50, 5  # classes of the first task and of the second, which is measured


@dataclass(frozen=True)
class Size:
    threads: int
    exemplars: int = 10  # per old class; new classes have 25 times as many images, the test split 5 times as many
    depth: int = 32
    batch: int = 128
    epochs: int = 1
    rounds: int = 3  # repetitions, after a warm-up that is not counted
    tiny: bool = False


@dataclass
class Listener(listeners.Listener):
    """Calls a function after each step and each epoch, and records the images per second of each epoch."""

    after_step: Callable[[str, int], None] = lambda stage, images: None
    after_epoch: Callable[[], None] = lambda: None
    rates: list[float] = field(default_factory=list)

    def step(self, task: Any, stage: str, epoch: int, epochs: int, images: int, parts: Any) -> None:
        self.after_step(stage, images)

    def epoch(self, record: dict[str, Any]) -> None:
        self.rates.append(record["images_per_second"])
        self.after_epoch()


class Clock:
    """Seconds by part. One part runs at a time; a nested part interrupts the outer one."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self.current, self.since = "other", time.perf_counter()

    def switch(self, part: str) -> str:
        """Start a part. Returns the part that ran before."""
        now, before = time.perf_counter(), self.current
        self.parts[before] += now - self.since
        self.current, self.since = part, now
        return before

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)

    def timed(self, part: str, function: Callable[..., T]) -> Callable[..., T]:
        def call(*arguments: Any, **named: Any) -> T:
            with self.during(part):
                return function(*arguments, **named)

        return call

    def each(self, part: str, function: Callable[..., Iterable[T]]) -> Callable[..., Iterator[T]]:
        """Yield the items of an iterable, and add the time until each arrives to a part."""

        def call(*arguments: Any, **named: Any) -> Iterator[T]:
            items = iter(function(*arguments, **named))
            while True:
                with self.during(part):
                    item = next(items, None)
                if item is None:
                    return
                yield item

        return call


def random_dataset(train: list[int], test: list[int]) -> Dataset:
    """Return a dataset with random images of the shape of CIFAR and a number of images per class."""
    generator = torch.Generator().manual_seed(0)

    def split(counts: list[int]) -> Split:
        pixels = torch.randint(0, 256, (sum(counts), 3, 32, 32), dtype=torch.uint8, generator=generator)
        return Split(ArrayImages(pixels), np.repeat(np.arange(len(counts)), counts))

    return Dataset("random", tuple(map(str, range(len(train)))), split(train), split(test), channels=3)


def second_task_dataset(size: Size) -> Dataset:
    """Return a dataset for the second task of CIFAR-100: 500 exemplars, 1,250 new and 2,750 test images by default."""
    counts = [size.exemplars] * OLD + [25 * size.exemplars] * NEW
    return random_dataset(counts, [5 * size.exemplars] * len(counts))


def random_batch(size: int, classes: int = OLD + NEW, side: int = 32) -> Batch:
    """Return a batch with the average fraction of old samples in an epoch: 1,000 of 3,500. The last tenth of the
    classes is new."""
    generator = torch.Generator().manual_seed(size)
    first_new = classes - max(1, classes // 11)
    old = torch.randint(0, first_new, (size * 2 // 7,), generator=generator)
    labels = torch.cat([old, torch.randint(first_new, classes, (size - len(old),), generator=generator)])
    images = torch.randn(size, 3, side, side, generator=generator).contiguous(memory_format=torch.channels_last)
    return Batch(images, labels, labels >= first_new)


def after_first_task(method: str, size: Size, dataset: Dataset, **more: dict[str, Any]) -> tuple[Learner, Settings]:
    """Return a learner in its state after the first task, with random weights."""
    common: dict[str, Any] = {
        "protocol": {"base": OLD, "step": NEW},
        "network": {"depth": size.depth},
        "train": {"epochs": size.epochs, "batch_size": size.batch},
        "runtime": {"device": "cpu", "threads": size.threads},
        "data": {"order": "natural"},
        # This herding keeps all images if there are not more than exemplars.
        "memory": {"per_class": size.exemplars, "herding": "icarl"},
    }
    if method.startswith("podnet"):
        common["finetune"] = {"epochs": 1}
    settings = complete(resolve(method, "cifar100", overrides=[common, more]), dataset)
    stream = build_stream(settings, dataset, warn=lambda _: None)
    learner = build_learner(settings, dataset, stream)
    rows = learner.network.head.init_weights(OLD, torch.Generator().manual_seed(0))
    learner.learn(stream.tasks[0], Listener(), {**learner.network.state_dict(), "head.new_weight": rows})
    return learner, settings
