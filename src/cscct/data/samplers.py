"""Samplers: how the samples of a stage are divided into the batches of an epoch.

A sampler is a function (pool, stage, generator) that returns batches of positions in the pool. It draws random numbers
from the generator only, so an epoch can be resumed at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ..errors import UserError
from ..lazy import lazy_module
from ..registry import Registry
from ..specs import Stage

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

    from .batches import Pool
else:
    torch = lazy_module("torch")

Sampler = Callable[["Pool", Stage, "Generator"], Iterable["Tensor"]]
SAMPLERS: Registry[Sampler] = Registry("sampler")


def epoch_batches(pool: Pool, stage: Stage, generator: Generator) -> list[Tensor]:
    """Return the batches of an epoch as the sampler of a stage divides them.

    Args:
        pool: Samples of the stage.
        stage: Names the sampler and holds its settings.
        generator: Source of the random numbers.

    Returns:
        Positions in the pool, shape (k,) int64 for each batch. An empty pool has no batches.

    Raises:
        UserError: If the sampler fails, or returns no batch, an empty one, or anything but positions in the pool.
    """
    if not len(pool):
        return []
    try:
        batches = list(SAMPLERS[stage.sampler](pool, stage, generator))
        problem = _problem(batches, len(pool))
    except Exception as error:  # a plugin may raise any
        raise UserError(f"The sampler {stage.sampler} failed: {type(error).__name__}: {error}.") from error
    if problem:
        raise UserError(f"The sampler {stage.sampler} {problem}. Correct it, or set sampler to shuffle.")
    return batches


def _problem(batches: Sequence[Tensor], samples: int) -> str | None:
    """Return what is wrong with the batches of a sampler, or None."""
    if not batches:
        return f"returned no batch for {samples} samples"
    for batch in batches:
        if not isinstance(batch, torch.Tensor) or batch.dtype != torch.int64 or batch.ndim != 1:
            return "must return batches that are int64 tensors of shape (k,)"
        if not len(batch):
            return f"returned an empty batch for {samples} samples"
    lowest, highest = (int(bound) for bound in torch.cat(list(batches)).aminmax())
    if lowest < 0 or highest >= samples:
        return f"must return positions from 0 to {samples - 1}, not {lowest} to {highest}"
    return None


def epoch_images(pool: Pool, stage: Stage) -> int:
    """Return the number of images that an epoch trains on.

    Args:
        pool: Samples of the stage.
        stage: Names the sampler and holds its settings.
    """
    return sum(map(len, epoch_batches(pool, stage, torch.Generator())))


@SAMPLERS.register("shuffle")
def shuffle(pool: Pool, stage: Stage, generator: Generator) -> Sequence[Tensor]:
    """Return every sample once, in random order."""
    return split(torch.randperm(len(pool), generator=generator), stage)


@SAMPLERS.register("mixed")
def mixed(pool: Pool, stage: Stage, generator: Generator) -> Sequence[Tensor]:
    """Return every new sample once; `old_fraction` of each batch are exemplars."""
    old = min(max(1, round(stage.old_fraction * stage.batch_size)), stage.batch_size - 1)
    return _with_exemplars(pool, stage, generator, stage.batch_size - old, old)


@SAMPLERS.register("replay")
def replay(pool: Pool, stage: Stage, generator: Generator) -> Sequence[Tensor]:
    """Return every new sample once; each batch contains `batch_size` new samples and equally many exemplars."""
    return _with_exemplars(pool, stage, generator, stage.batch_size, stage.batch_size)


@SAMPLERS.register("sequential")
def sequential(pool: Pool, stage: Stage, generator: Generator) -> Sequence[Tensor]:
    """Return every sample once: new ones in the order of the dataset, exemplars evenly among them."""
    new, old = pool.is_new.nonzero().flatten(), (~pool.is_new).nonzero().flatten()
    new = new[pool.indices[new].argsort(stable=True)]
    return split(_interleave(new, old[torch.randperm(len(old), generator=generator)]), stage)


def split(order: Tensor, stage: Stage) -> Sequence[Tensor]:
    """Divide positions into batches of `batch_size`.

    An incomplete last batch is omitted if the stage has `drop_last`, unless it is the only one.

    Args:
        order: Positions, shape (n,).
        stage: Batch size and `drop_last`.
    """
    return _complete(order.split(stage.batch_size), stage, stage.batch_size)


def _complete(batches: Sequence[Tensor], stage: Stage, size: int) -> Sequence[Tensor]:
    incomplete = len(batches) > 1 and len(batches[-1]) < size
    return batches[:-1] if stage.drop_last and incomplete else batches


def _with_exemplars(pool: Pool, stage: Stage, generator: Generator, n_new: int, n_old: int) -> Sequence[Tensor]:
    """Return batches with `n_new` new samples and `n_old` exemplars each; the last one is smaller, in proportion.

    Exemplars are drawn from one random permutation after another. Without new samples or exemplars, the result is that
    of `shuffle`.
    """
    order = torch.randperm(len(pool), generator=generator)
    new, old = order[pool.is_new[order]], order[~pool.is_new[order]]
    if not len(new) or not len(old):
        return split(order, stage)
    chunks = _complete(new.split(n_new), stage, n_new)
    ends = [*accumulate((max(1, round(len(chunk) * n_old / n_new)) for chunk in chunks), initial=0)]
    again = [old[torch.randperm(len(old), generator=generator)] for _ in range((ends[-1] - 1) // len(old))]
    drawn = torch.cat([old, *again])
    return [_interleave(chunk, drawn[a:b]) for chunk, (a, b) in zip(chunks, pairwise(ends), strict=True)]


def _interleave(new: Tensor, old: Tensor) -> Tensor:
    """Distribute exemplars evenly among new samples, so that the shards of several processes are composed alike."""
    places = torch.cat([(torch.arange(len(part)) + 0.5) / max(1, len(part)) for part in (new, old)])
    return torch.cat([new, old])[places.argsort(stable=True)]
