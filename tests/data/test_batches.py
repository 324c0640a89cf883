import gc
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cscct.data.augment import make_view
from cscct.data.base import ArrayImages
from cscct.data.batches import Pool, join, plain_batches, prefetch, training_batches
from cscct.data.samplers import epoch_images
from cscct.specs import Stage, TransformSpec
from cscct.structs import Batch

CPU = torch.device("cpu")
# Images whose every pixel is the number of the image, and a transform that leaves it there.
PIXELS = torch.arange(60, dtype=torch.uint8).view(60, 1, 1, 1).repeat(1, 1, 4, 4)
EXACT = TransformSpec(padding=0, flip=False, mean=(0.0,), std=(1 / 255,))
VIEW = make_view(ArrayImages(PIXELS), EXACT)
NEW = [(3, range(20, 40)), (4, [40, 41, 42])]
MEMORY = [(0, [5, 1]), (1, [10]), (2, [7, 8, 9])]
LABELS = {index: label for label, members in [*NEW, *MEMORY] for index in members}


def stage_of(size: int) -> Stage:
    return Stage(epochs=1, batch_size=size)


def epoch(pool: Pool, size: int = 4, seed: int = 1, key: tuple[str | int, ...] = (1, "train", 0)) -> list[Batch]:
    return list(training_batches(VIEW, pool, stage_of(size), seed, key, CPU))


def numbers(batches: list[Batch]) -> list[int]:
    return [round(value) for batch in batches for value in batch.images[:, 0, 0, 0].tolist()]


def test_join() -> None:
    pool = join(NEW, MEMORY)
    assert len(pool) == 29
    assert pool.indices.tolist() == [*range(20, 43), 5, 1, 10, 7, 8, 9]
    assert pool.labels.tolist() == [3] * 20 + [4] * 3 + [0, 0, 1, 2, 2, 2]
    assert pool.is_new.tolist() == [True] * 23 + [False] * 6
    empty = join([], [])
    for each in (pool, empty):
        assert (each.indices.dtype, each.labels.dtype, each.is_new.dtype) == (torch.int64, torch.int64, torch.bool)
    assert epoch(empty) == []
    assert epoch_images(empty, stage_of(4)) == 0


@pytest.mark.parametrize("size", [1, 4, 7, 28, 29, 100])
def test_each_sample_once_an_epoch(size: int) -> None:
    """The last, small batch is kept; images, labels and is_new stay together."""
    batches = epoch(join(NEW, MEMORY), size)
    assert [len(batch.labels) for batch in batches[:-1]] == [size] * (29 // size - (29 % size == 0))
    assert sum(len(batch.labels) for batch in batches) == 29
    assert sorted(numbers(batches)) == sorted(LABELS)
    for batch in batches:
        shown = numbers([batch])
        assert batch.labels.tolist() == [LABELS[index] for index in shown]
        assert batch.is_new.tolist() == [index >= 20 for index in shown]
        assert batch.images.shape == (len(shown), 1, 4, 4)


@pytest.mark.parametrize(("size", "sizes"), [(4, [4] * 7), (14, [14, 14]), (28, [28]), (29, [29]), (100, [29])])
def test_drop_last(size: int, sizes: list[int]) -> None:
    """Each epoch drops other samples; a single incomplete batch is kept."""
    pool, stage = join(NEW, MEMORY), Stage(epochs=2, batch_size=size, drop_last=True)
    epochs = [list(training_batches(VIEW, pool, stage, 1, (0, "train", number), CPU)) for number in range(2)]
    assert [[len(batch.labels) for batch in epoch] for epoch in epochs] == [sizes, sizes]
    assert epoch_images(pool, stage) == sum(sizes)
    assert numbers(epochs[0]) == numbers(epoch(pool, size, key=(0, "train", 0)))[: sum(sizes)]
    if sum(sizes) < 29:
        assert set(numbers(epochs[0])) != set(numbers(epochs[1]))


def test_order_depends_on_the_key_alone() -> None:
    pool = join(NEW, MEMORY)
    first = numbers(epoch(pool))
    torch.manual_seed(5)
    assert numbers(epoch(pool)) == first
    assert numbers(epoch(pool, size=9)) == first
    others = [
        numbers(epoch(pool, seed=2)),
        numbers(epoch(pool, key=(1, "train", 1))),
        numbers(epoch(pool, key=(2, "train", 0))),
        numbers(epoch(pool, key=(1, "finetune", 0))),
    ]
    assert len({tuple(order) for order in [first, *others]}) == 5
    assert first != pool.indices.tolist()


def test_augmentation_depends_on_the_key_and_the_step() -> None:
    noise = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    view = make_view(ArrayImages(noise), TransformSpec(padding=2, brightness=0.3))
    same = Pool(
        torch.zeros(12, dtype=torch.int64), torch.zeros(12, dtype=torch.int64), torch.ones(12, dtype=torch.bool)
    )

    def images(seed: int, number: int) -> list[Tensor]:
        return [batch.images for batch in training_batches(view, same, stage_of(6), seed, (0, "train", number), CPU)]

    first, again, later, seeded = images(1, 0), images(1, 0), images(1, 1), images(2, 0)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    for x, y in ((first[0], first[1]), (first[0], later[0]), (first[0], seeded[0])):
        assert not torch.equal(x, y)


@pytest.mark.parametrize("size", [1, 4, 5, 100])
def test_plain_batches_keep_the_order(size: int) -> None:
    indices = torch.tensor([9, 3, 3, 50, 0])
    batches = list(plain_batches(VIEW, indices, size, CPU))
    assert [len(batch) for batch in batches] == [len(chunk) for chunk in indices.split(size)]
    assert torch.cat(batches)[:, 0, 0, 0].round().tolist() == indices.tolist()


def test_plain_batches_take_a_variant() -> None:
    ramp = torch.arange(4, dtype=torch.uint8).view(1, 1, 1, 4).repeat(3, 1, 4, 1)
    view = make_view(ArrayImages(ramp), EXACT)
    (plain,) = plain_batches(view, torch.arange(3), 5, CPU)
    (flipped,) = plain_batches(view, torch.arange(3), 5, CPU, "hflip")
    assert torch.equal(flipped, plain.flip(3))
    assert not torch.equal(flipped, plain)


@pytest.mark.parametrize("depth", [0, 1, 2, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 20])
def test_prefetch_keeps_the_order(count: int, depth: int) -> None:
    def make(step: int) -> int:
        time.sleep(0.002 * (step % 2))
        return step * step

    assert list(prefetch(make, count, depth)) == [step * step for step in range(count)]


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def started_since(before: set[threading.Thread]) -> set[threading.Thread]:
    return set(threading.enumerate()) - before


def test_prefetch_depth() -> None:
    made: list[int] = []
    items = prefetch(lambda step: made.append(step) or threading.get_ident(), 20, depth=2)  # type: ignore[func-returns-value]
    assert made == []  # nothing before the first is asked for
    assert next(items) != threading.get_ident()
    assert wait_until(lambda: len(made) == 3)
    time.sleep(0.02)
    assert made == [0, 1, 2]
    next(items)
    assert wait_until(lambda: len(made) == 4)
    items.close()  # type: ignore[attr-defined]


def test_prefetch_forwards_exceptions() -> None:
    before = set(threading.enumerate())

    def make(step: int) -> int:
        if step == 3:
            raise KeyError("the fourth")
        return step

    items = prefetch(make, 10)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="the fourth"):
        next(items)
    assert not started_since(before)


@pytest.mark.parametrize("way", ["close", "break", "raise"])
def test_prefetch_stops_with_its_consumer(way: str) -> None:
    before, made = set(threading.enumerate()), []

    def make(step: int) -> int:
        made.append(step)
        time.sleep(0.005)
        return step

    def consume() -> None:
        items = prefetch(make, 1000)
        for item in items:
            if item == 1:
                if way == "raise":
                    raise InterruptedError
                break
        if way == "close":
            items.close()  # type: ignore[attr-defined]

    if way == "raise":
        with pytest.raises(InterruptedError) as caught:
            consume()
        del caught
    else:
        consume()
    gc.collect()
    assert wait_until(lambda: not started_since(before))
    left = len(made)
    time.sleep(0.03)
    assert len(made) == left <= 5


def test_prefetch_cancels_queued_steps() -> None:
    made, release = list[int](), threading.Event()

    def make(step: int) -> int:
        made.append(step)
        return step if step != 1 or release.wait(120) else -1

    items = prefetch(make, 1000)
    next(items)
    assert wait_until(lambda: made == [0, 1])  # step 1 is running, step 2 is queued
    threading.Timer(1.0, release.set).start()
    items.close()  # type: ignore[attr-defined]
    assert made == [0, 1]


@pytest.mark.parametrize(
    ("stage", "steps"), [(stage_of(4), 8), (Stage(epochs=1, batch_size=8, sampler="mixed", views=2), 6)]
)
@pytest.mark.parametrize("start", [0, 1, 5, 20])
def test_epoch_resumes_at_any_step(start: int, stage: Stage, steps: int) -> None:
    noise = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    view = make_view(ArrayImages(noise), TransformSpec(padding=2, brightness=0.3))
    exemplars = sum(len(members) for _, members in MEMORY)
    pool = join(NEW, MEMORY, torch.arange(3.0 * exemplars).view(exemplars, 3))
    whole = list(training_batches(view, pool, stage, 1, (0, "train", 0), CPU))
    rest = list(training_batches(view, pool, stage, 1, (0, "train", 0), CPU, start))
    assert len(whole) == steps
    assert len(rest) == max(0, steps - start)
    for expected, batch in zip(whole[start:], rest, strict=True):
        for a, b in zip(expected, batch, strict=True):
            assert a is b is None or torch.equal(a.nan_to_num(-1), b.nan_to_num(-1))
        assert expected.stored is not None
        assert torch.equal(expected.stored.isnan().all(dim=1), expected.is_new)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_shards_form_the_batch(processes: int) -> None:
    """Augmented as in one process; a share without a sample comes with an image all the same, and no label."""
    spec = TransformSpec(padding=2, flip=True, brightness=0.3)
    view = make_view(ArrayImages(PIXELS * 4 + torch.arange(16, dtype=torch.uint8).view(4, 4)), spec)
    pool, key, stage = join(NEW, MEMORY), (1, "train", 0), Stage(epochs=1, batch_size=9, views=2)

    def share(rank: int) -> Callable[[int], slice]:
        return lambda count: slice(count * rank // processes, count * (rank + 1) // processes)

    whole = list(training_batches(view, pool, stage, 1, key, CPU))
    parts = [list(training_batches(view, pool, stage, 1, key, CPU, part=share(rank))) for rank in range(processes)]
    assert len(whole[-1].labels) == 2  # fewer than some numbers of processes
    for step, batch in enumerate(whole):
        mine = [part[step] for part in parts]
        assert all(len(part.images) == max(1, len(part.labels)) for part in mine)
        assert torch.equal(torch.cat([part.images[: len(part.labels)] for part in mine]), batch.images)
        assert torch.equal(torch.cat([part.second[: len(part.labels)] for part in mine]), batch.second)
        assert torch.equal(torch.cat([part.labels for part in mine]), batch.labels)
        assert torch.equal(torch.cat([part.is_new for part in mine]), batch.is_new)


def test_a_second_view_shows_the_same_images_and_leaves_the_first_unchanged() -> None:
    spec = TransformSpec(padding=2, flip=False, mean=(0.0,), std=(1 / 255,))
    view = make_view(ArrayImages(PIXELS + 1), spec)
    pool, key = join(NEW, MEMORY), (1, "train", 0)
    once, twice = (
        list(training_batches(view, pool, Stage(epochs=1, batch_size=8, views=views), 1, key, CPU)) for views in (1, 2)
    )
    for single, batch in zip(once, twice, strict=True):
        assert single.second is None
        assert torch.equal(single.images, batch.images)
        assert torch.equal(batch.images.amax((1, 2, 3)), batch.second.amax((1, 2, 3)))  # the number of the image
        assert not torch.equal(batch.images, batch.second)  # crops differ
