"""Batches: new data and exemplars joined, shuffled, augmented; and plain ones for measuring."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..seeding import generator
from ..specs import Stage
from ..structs import Batch
from .augment import NMEAugmentation, View

T = TypeVar("T")


@dataclass(frozen=True)
class Pool:
    """The training samples of a stage: dataset indices, labels as positions in the class order, what is new, and what
    exemplars carry (a row of NaN for a sample that carries nothing)."""

    indices: Tensor
    labels: Tensor
    is_new: Tensor
    carried: Tensor | None = None

    def __len__(self) -> int:
        return len(self.indices)


def join(
    new: Sequence[tuple[int, Sequence[int]]],
    memory: Sequence[tuple[int, Sequence[int]]],
    carried: Tensor | None = None,
) -> Pool:
    """Two lists of (label, dataset indices) into one pool. carried: a row for each sample of the memory, in order."""
    indices, labels, is_new = [], [], []
    for fresh, classes in ((True, new), (False, memory)):
        for label, members in classes:
            indices.append(np.asarray(members, dtype=np.int64))
            labels.append(np.full(len(members), label, dtype=np.int64))
            is_new.append(np.full(len(members), fresh))
    parts = [torch.from_numpy(np.concatenate(part)) for part in (indices, labels, is_new)]
    if carried is not None:
        parts.append(torch.full((len(parts[0]), carried.shape[1]), torch.nan))
        parts[3][len(parts[0]) - len(carried) :] = carried
    return Pool(*parts)


def training_batches(
    view: View,
    pool: Pool,
    stage: Stage,
    seed: int,
    key: tuple[str | int, ...],
    device: torch.device,
    start: int = 0,
    part: Callable[[int], slice] | None = None,
) -> Iterator[Batch]:
    """One epoch: every sample once, in an order drawn from the key; the last batch may be small, and is kept unless the
    stage drops it.

    start: the first step wanted. What a step gives does not depend on it. part: this process's share of so many
    samples. An empty one comes with an image all the same, because networks want one; it has no label.
    """
    order = torch.randperm(len(pool), generator=generator(seed, *key, "shuffle"))

    def make(step: int) -> Batch:
        chosen = order[step * stage.batch_size : (step + 1) * stage.batch_size]
        own = part(len(chosen)) if part else slice(0, len(chosen))
        seen = own if own.stop > own.start else slice(0, 1)
        images = view.train(pool.indices[chosen], generator(seed, *key, "augment", step), seen)
        mine = chosen[own]
        carried = None if pool.carried is None else pool.carried[mine].to(device)
        return Batch(images.to(device), pool.labels[mine].to(device), pool.is_new[mine].to(device), carried)

    yield from prefetch(lambda step: make(start + step), stage.steps(len(pool)) - start, view.prefetch)


def plain_batches(
    view: View, indices: Tensor, batch_size: int, device: torch.device, variant: NMEAugmentation = "none"
) -> Iterator[Tensor]:
    """Test-transformed images in order."""
    chunks = indices.split(batch_size) if len(indices) else ()
    yield from prefetch(lambda step: view.plain(chunks[step], variant).to(device), len(chunks), view.prefetch)


def prefetch(make: Callable[[int], T], count: int, depth: int = 2) -> Iterator[T]:
    """make(0), make(1), ... with up to `depth` of them prepared in the background; with 0, each when it is due."""
    if depth == 0:
        yield from map(make, range(count))
        return
    with ThreadPoolExecutor(1) as worker:
        waiting: deque[Future[T]] = deque()
        try:
            for step in range(count):
                waiting.append(worker.submit(make, step))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
