"""How samplers divide the samples of a stage into batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import run_quietly, settings_for
from cscct.data.batches import Pool, join
from cscct.data.samplers import SAMPLERS, epoch_batches, epoch_images
from cscct.errors import UserError
from cscct.specs import Stage

NEW = [(3, range(40, 57)), (4, range(20, 40))]  # 37 new samples, not in the order of the dataset
MEMORY = [(0, [5, 1]), (1, [10]), (2, [7, 8, 60, 9])]  # 7 exemplars
POOL = join(NEW, MEMORY)


def epoch(pool: Pool, sampler: str, size: int, seed: int = 0, **settings: Any) -> list[list[int]]:
    stage = Stage(epochs=1, batch_size=size, sampler=sampler, **settings)
    return [batch.tolist() for batch in epoch_batches(pool, stage, torch.Generator().manual_seed(seed))]


def composition(pool: Pool, batch: list[int]) -> tuple[int, int]:
    new = int(pool.is_new[batch].sum())
    return new, len(batch) - new


@pytest.mark.parametrize("sampler", ["shuffle", "mixed", "replay"])
@pytest.mark.parametrize("pool", [join(NEW, []), join([], MEMORY)], ids=["new", "memory"])
def test_shuffle_is_a_permutation_and_so_are_others_with_one_side(sampler: str, pool: Pool) -> None:
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(3)).tolist()
    assert epoch(pool, sampler, 5, seed=3) == [order[start : start + 5] for start in range(0, len(pool), 5)]


@pytest.mark.parametrize(
    ("sampler", "size", "settings", "full", "last"),
    [
        ("mixed", 8, {}, (4, 4), (1, 1)),
        ("mixed", 8, {"old_fraction": 0.25}, (6, 2), (1, 1)),
        ("mixed", 10, {"old_fraction": 0.7}, (3, 7), (1, 2)),
        ("mixed", 8, {"old_fraction": 0.01}, (7, 1), (2, 1)),
        ("mixed", 8, {"old_fraction": 0.99}, (1, 7), (1, 7)),
        ("replay", 8, {}, (8, 8), (5, 5)),
        ("replay", 100, {}, (37, 37), (37, 37)),
    ],
)
def test_every_batch_has_its_share_of_exemplars(
    sampler: str, size: int, settings: dict[str, Any], full: tuple[int, int], last: tuple[int, int]
) -> None:
    batches = epoch(POOL, sampler, size, **settings)
    assert {composition(POOL, batch) for batch in batches[:-1]} <= {full}
    assert composition(POOL, batches[-1]) == last
    counts = Counter(position for batch in batches for position in batch)
    assert [counts[position] for position in range(37)] == [1] * 37  # every new sample once
    uses = [counts[position] for position in range(37, 44)]
    assert max(uses) - min(uses) <= 1
    assert epoch(POOL, sampler, size, **settings) == batches
    assert epoch(POOL, sampler, size, seed=1, **settings) != batches
    dropped = epoch(POOL, sampler, size, drop_last=True, **settings)
    assert dropped == (batches if len(batches) == 1 or last == full else batches[:-1])


@pytest.mark.parametrize("sampler", ["mixed", "replay"])
def test_shards_of_a_batch_are_composed_alike(sampler: str) -> None:
    for batch in epoch(POOL, sampler, 6)[:-1]:
        shards = [batch[a:b] for a, b in pairwise(range(0, len(batch) + 1, len(batch) // 2))]
        new = [composition(POOL, shard)[0] for shard in shards]
        assert max(new) - min(new) <= 1


def test_a_stream_is_in_the_order_of_the_dataset() -> None:
    batches = epoch(POOL, "sequential", 11)
    assert [len(batch) for batch in batches] == [11] * 4
    order = [position for batch in batches for position in batch]
    assert POOL.indices[[position for position in order if position < 37]].tolist() == list(range(20, 57))
    assert sorted(order) == list(range(44))
    assert {composition(POOL, batch)[1] for batch in batches} <= {1, 2}
    assert [position for position in order if position >= 37] != list(range(37, 44))
    assert epoch(join(NEW, []), "sequential", 20, drop_last=True)[0] == [*range(17, 37)]


@pytest.fixture
def registered() -> Iterator[Callable[[Any], None]]:
    yield lambda sampler: SAMPLERS.register("mine")(sampler)
    SAMPLERS.pop("mine", None)


@pytest.mark.parametrize(
    ("returned", "word"),
    [
        ([], "no batch"),
        ([torch.arange(3), torch.arange(0)], "empty"),
        ([torch.tensor([0, 44])], "44"),
        ([torch.tensor([-1, 2])], "-1"),
        ([torch.tensor([1.0])], "int64"),
        ([[0, 1]], "int64"),
        (None, "failed"),
    ],
)
def test_an_unusable_sampler_is_an_error(registered: Callable[[Any], None], returned: Any, word: str) -> None:
    registered(lambda pool, stage, generator: returned)
    with pytest.raises(UserError, match=word):
        epoch(POOL, "mine", 4)


def test_a_sampler_without_batches_for_a_later_task_is_rejected_before_training(
    registered: Callable[[Any], None], tmp_path: Path
) -> None:
    registered(lambda pool, stage, generator: (part for part in pool.is_new.nonzero().split(8) if pool.is_new.all()))
    with pytest.raises(UserError, match="mine"):
        run_quietly(tmp_path / "run", "lucir", "train.epochs=1", "train.sampler=mine")
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("train.sampler=mixd", "mixed"),
        ("finetune={epochs: 1, sampler: rely}", "finetune.sampler"),
        ("stages={more: {epochs: 1, sampler: rely}}", "stages.more.sampler"),
        ("train.old_fraction=1", "old_fraction"),
        ("train={sampler: mixed, batch_size: 1}", "batch_size"),
        ("train.views=3", "views"),
        ("network={train_from: 1, cached_views: 1}", "cached_views"),
    ],
)
def test_invalid_settings(setting: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        settings_for("lucir", "digits", "train.views=2", setting)


def test_a_registered_sampler_is_used(registered: Callable[[Any], None]) -> None:
    def every_second(pool: Pool, stage: Stage, generator: torch.Generator) -> list[Tensor]:
        return [torch.arange(start, len(pool), 2) for start in range(2)]

    registered(every_second)
    assert epoch(POOL, "mine", 3) == [list(range(0, 44, 2)), list(range(1, 44, 2))]
    assert epoch_images(POOL, Stage(epochs=1, sampler="mine")) == 44
    assert settings_for("lucir", "digits", "train.sampler=mine").train.sampler == "mine"
