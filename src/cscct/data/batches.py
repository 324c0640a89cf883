"""Training batches of new samples and exemplars, and batches for evaluation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..seeding import generator
from ..specs import Stage
from ..structs import Batch, Mixed
from .augment import NMEAugmentation, View
from .base import CPU, to_device
from .samplers import epoch_batches

T = TypeVar("T")


@dataclass(frozen=True)
class Pool:
    """Training samples of a stage.

    Attributes:
        indices: Dataset indices, shape (n,), int64.
        labels: Labels as positions in the class order, shape (n,), int64.
        is_new: Whether a sample belongs to the current task, shape (n,), bool.
        stored: Stored targets, shape (n, width), with NaN for samples that have none; None if no sample has any.
    """

    indices: Tensor
    labels: Tensor
    is_new: Tensor
    stored: Tensor | None = None

    def __len__(self) -> int:
        return len(self.indices)


def join(
    new: Sequence[tuple[int, Sequence[int]]],
    memory: Sequence[tuple[int, Sequence[int]]],
    stored: Tensor | None = None,
) -> Pool:
    """Combine new samples and exemplars.

    Args:
        new: Label and dataset indices of each class of the current task.
        memory: Label and dataset indices of each class in the memory.
        stored: Stored targets of the samples of the memory, in their order, shape (exemplars, width).
    """
    indices, labels = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    is_new = [np.empty(0, dtype=bool)]
    for from_task, classes in ((True, new), (False, memory)):
        for label, members in classes:
            indices.append(np.asarray(members, dtype=np.int64))
            labels.append(np.full(len(members), label, dtype=np.int64))
            is_new.append(np.full(len(members), from_task))
    parts = [torch.from_numpy(np.concatenate(part)) for part in (indices, labels, is_new)]
    if stored is not None:
        parts.append(torch.full((len(parts[0]), stored.shape[1]), torch.nan))
        parts[3][len(parts[0]) - len(stored) :] = stored
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
    """Yield the batches of an epoch, as the sampler of the stage divides the samples.

    Args:
        view: Images as network inputs.
        pool: Samples of the stage.
        stage: Sampler, batch size and number of views.
        seed: Seed of the run.
        key: Purpose of the random numbers, for example task, stage and epoch.
        device: Device of the batches.
        start: First step. The content of a step does not depend on it.
        part: Function from the size of a batch to the slice of this process. If the slice is empty, the batch contains
            one image without a label, because networks need an input.
    """
    batches = epoch_batches(pool, stage, generator(seed, *key, "shuffle"))

    def make(step: int) -> Batch:
        members = batches[step]
        shard = part(len(members)) if part else slice(0, len(members))
        non_empty = shard if shard.stop > shard.start else slice(0, 1)
        mixing = view.mixing and view.mixing(len(members), generator(seed, *key, "mixup", step))

        def augmented(purpose: str) -> Tensor:
            random = generator(seed, *key, purpose, step)
            return _mixed_images(view, pool.indices[members], random, non_empty, mixing, device)

        samples = members[shard]
        stored = None if pool.stored is None else to_device(pool.stored[samples], device)
        labels, is_new = (to_device(values[samples], device) for values in (pool.labels, pool.is_new))
        second = augmented("second view") if stage.views == 2 else None
        mixed = mixing and Mixed(to_device(pool.labels[members[mixing[0][shard]]], device), mixing[1])
        return Batch(augmented("augment"), labels, is_new, stored, second, mixed)

    yield from prefetch(lambda step: make(start + step), len(batches) - start, _depth(view, device))


def _mixed_images(
    view: View,
    indices: Tensor,
    random: torch.Generator,
    part: slice,
    mixing: tuple[Tensor, float] | None,
    device: torch.device,
) -> Tensor:
    """Return augmented images of a part of a batch, mixed with their partners, which may be outside of the part."""
    if mixing is None:
        return view.train(indices, random, part, device)
    partners, weight = mixing
    own = torch.arange(len(indices))[part]
    needed, places = torch.cat([own, partners[own]]).unique(return_inverse=True)
    images, others = view.train(indices, random, needed, device)[to_device(places, device)].chunk(2)
    return torch.lerp(others, images, weight).contiguous(memory_format=torch.channels_last)


def plain_batches(
    view: View, indices: Tensor, batch_size: int, device: torch.device, variant: NMEAugmentation = "none"
) -> Iterator[Tensor]:
    """Yield images with the test transform, in order.

    Args:
        view: Images as network inputs.
        indices: Indices of the images, shape (n,).
        batch_size: Images per batch.
        device: Device of the batches.
        variant: Variant of the images, see `View.plain`.

    Yields:
        Images, shape (k, c, h, w).
    """
    chunks = indices.split(batch_size) if len(indices) else ()
    yield from prefetch(lambda step: view.plain(chunks[step], variant, device), len(chunks), _depth(view, device))


def _depth(view: View, device: torch.device) -> int:
    """Return how many batches are prepared ahead: at least two if another device computes meanwhile."""
    return view.prefetch if device == CPU else max(2, view.prefetch)


def prefetch(
    make: Callable[[int], T], count: int, depth: int = 2, pool: ThreadPoolExecutor | None = None
) -> Generator[T, None, None]:
    """Yield make(0), ..., make(count - 1), computed ahead in background threads.

    Args:
        make: Function of the index.
        count: Number of results.
        depth: Number of results to compute ahead; 0 to compute each one in the calling thread when it is requested.
        pool: Threads. Default: a new thread.
    """
    if depth == 0:
        yield from map(make, range(count))
        return
    with nullcontext(pool) if pool else ThreadPoolExecutor(1) as workers:
        pending: deque[Future[T]] = deque()
        try:
            for step in range(count):
                pending.append(workers.submit(make, step))
                if len(pending) > depth:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
