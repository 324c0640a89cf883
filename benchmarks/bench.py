"""How fast, how small? `python benchmarks/bench.py [--tiny] [--json FILE] [--batches N] [--threads N]`

Speeds are ratios of things measured in turns on random images of CIFAR's shape, so that a machine that drifts does so
for both sides. Use a quiet machine all the same. It measures and does not judge: the exit code is 0 in any case.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import cscct
from cscct.config import CheckpointSpec, Settings, resolve
from cscct.data import ArrayImages, Dataset, Split
from cscct.learn.build import build_learner, build_stream, complete, load_dataset
from cscct.learn.learner import Learner
from cscct.learn.loop import Work, run_stage
from cscct.losses import WeightedSum
from cscct.nets import Network
from cscct.runs.checkpoints import Checkpoints
from cscct.runs.runner import Unheard, execute
from cscct.runs.store import RunFolder
from cscct.structs import Batch, Step
from textbook import textbook_rounds, trained

OLD, NEW = 50, 5  # classes of the first task and of the second, the one that is measured
GOALS = {  # True: at least this, False: at most
    "loop / floor": (0.85, True),
    "CSC+CT / LUCIR step, batch 128": (0.03, False),
    "CSC+CT / LUCIR step, batch 1024": (0.10, False),
    "loop / textbook": (1.7, True),
    "peak memory, GB": (1.5, False),
    "checkpoints / time, default interval": (0.02, False),
    "checkpoints / time, a run of digits": (0.02, False),
}


@dataclass(frozen=True)
class Size:
    threads: int
    exemplars: int  # of each old class; 25 times as many images of each new one, 5 times as many to test each
    depth: int = 32
    batch: int = 128  # and 8 times that for the large one
    rounds: int = 5  # and one before them that does not count
    stored: int = 500  # training images of each of 100 classes where memory is measured


@dataclass
class Listener:
    """Notes the images per second of each epoch of the package's loop, and then does something else."""

    after_epoch: Callable[[], None] = lambda: None
    rates: list[float] = field(default_factory=list)

    def step(self, *_: object) -> None:
        pass

    def epoch(self, record: dict[str, Any]) -> None:
        self.rates.append(record["images_per_second"])
        self.after_epoch()


def random_dataset(train: list[int], test: list[int]) -> Dataset:
    """So many images of each class."""
    generator = torch.Generator().manual_seed(0)

    def split(counts: list[int]) -> Split:
        pixels = torch.randint(0, 256, (sum(counts), 3, 32, 32), dtype=torch.uint8, generator=generator)
        return Split(ArrayImages(pixels), np.repeat(np.arange(len(counts)), counts))

    return Dataset("random", tuple(map(str, range(len(train)))), split(train), split(test), channels=3)


def random_batch(size: int) -> Batch:
    """With as large a share of old classes as an epoch has: 1000 of 3500."""
    generator = torch.Generator().manual_seed(size)
    old = torch.randint(0, OLD, (size * 2 // 7,), generator=generator)
    labels = torch.cat([old, torch.randint(OLD, OLD + NEW, (size - len(old),), generator=generator)])
    images = torch.randn(size, 3, 32, 32, generator=generator).contiguous(memory_format=torch.channels_last)
    return Batch(images, labels, labels >= OLD)


def after_first_task(size: Size, dataset: Dataset, **more: dict[str, Any]) -> tuple[Learner, Settings]:
    """A learner that has seen the first task, with random weights in place of trained ones."""
    common = {
        "protocol": {"base": OLD, "step": NEW},
        "network": {"depth": size.depth},
        "train": {"epochs": 1, "batch_size": size.batch},
        "runtime": {"device": "cpu", "threads": size.threads},
    }
    settings = complete(resolve("lucir+cscct", "cifar100", overrides=[common, more]), dataset)
    stream = build_stream(settings, dataset, warn=lambda _: None)
    learner = build_learner(settings, dataset, stream)
    rows = learner.network.head.fresh_rows(OLD, torch.Generator().manual_seed(0))
    learner.learn(stream.tasks[0], Listener(), {**learner.network.state_dict(), "head.new_weight": rows})
    return learner, settings


def floor_rounds(network: Network, teacher: Network, batch: Batch, steps: int) -> Iterator[float]:
    """What no such loop can do without, in seconds: student both ways, teacher one way, an SGD step."""
    student = copy.deepcopy(network).train()
    optimiser = torch.optim.SGD(trained(student), 0.1, momentum=0.9, weight_decay=5e-4)
    while True:
        started = time.perf_counter()
        for _ in range(steps):
            with torch.no_grad():
                teacher(batch.images)
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(student(batch.images).logits, batch.labels).backward()
            optimiser.step()
        yield time.perf_counter() - started


def loops(size: Size) -> tuple[dict[str, list[float]], Learner, Network]:
    """Images per second of the package's loop, the floor and the textbook, in turns: an epoch of each is a round."""
    counts = [1] * OLD + [25] * NEW
    dataset = random_dataset([n * size.exemplars for n in counts], [5 * size.exemplars] * len(counts))
    memory = {"per_class": size.exemplars, "herding": "icarl"}  # this herding keeps all images where there is room
    epochs = {"epochs": size.rounds + 1}
    learner, settings = after_first_task(size, dataset, data={"order": "natural"}, memory=memory, train=epochs)
    task, network, teacher = learner.stream.tasks[1], learner.network, learner.network.frozen_copy()
    images, steps = len(dataset.train), -(-len(dataset.train) // size.batch)
    # Both copy the network when they are first asked, after an epoch of the loop: with rows for the new classes.
    floor = floor_rounds(network, teacher, random_batch(size.batch), steps)
    textbook = textbook_rounds((network, teacher), dataset, settings.data.transform, settings.train, task)
    rates: dict[str, list[float]] = {"loop": [], "floor": [], "textbook": [], "textbook without its tests": []}

    def after_epoch() -> None:
        rates["floor"].append(steps * size.batch / next(floor))
        training, testing = next(textbook)
        rates["textbook"].append(images / (training + testing))
        rates["textbook without its tests"].append(images / training)

    learner.learn(task, Listener(after_epoch, rates["loop"]))
    return {name: values[1:] for name, values in rates.items()}, learner, teacher


def share_of_terms(learner: Learner, teacher: Network, batch: Batch, rounds: int) -> float:
    """Forward and backward of CSC and CT on the batch's features, as a share of a whole step of LUCIR."""
    task, network, terms = learner.stream.tasks[1], learner.network, learner.recipe.terms
    lucir = WeightedSum([term for term in terms if term.name not in ("csc", "ct")], task)
    added = WeightedSum([term for term in terms if term.name in ("csc", "ct")], task)
    work = Work("train", task, network, teacher, lucir, trained(network), lambda *_: [batch], train_mode=True)
    with torch.no_grad():
        step = Step(batch, network(batch.images), teacher(batch.images), task)
    step.student.features.requires_grad_()
    shares = []
    for _ in range(rounds + 1):
        listener, seconds = Listener(), []
        run_stage(work, replace(learner.recipe.train, epochs=1), listener)
        for _ in range(20):
            started = time.perf_counter()
            step.student.features.grad = None
            added(step)[0].backward()
            seconds.append(time.perf_counter() - started)
        shares.append(median(seconds) * listener.rates[0] / len(batch.labels))
    return median(shares[1:])


def peak_of_a_run(size: Size) -> float:
    """Gigabytes this process held at most, after the second task with CIFAR-100's number of images in memory. Of each
    class only some are used, which saves time and hardly any memory."""
    dataset = random_dataset([size.stored] * 100, [size.stored // 5] * 100)
    learner, _ = after_first_task(size, dataset, data={"train_per_class": 60, "test_per_class": 20})
    learner.learn(learner.stream.tasks[1], Listener())
    learner.evaluate(learner.stream.tasks[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def share_of_checkpoints(learner: Learner, teacher: Network, rounds: int) -> float:
    """One checkpoint in the midst of the second task, to the disk and flushed, over the time between two of them."""
    learner.teacher = teacher
    momentum = {f"momentum.{i}": torch.zeros_like(one) for i, one in enumerate(learner.network.parameters())}
    with TemporaryDirectory(dir=".") as folder:  # where runs are written, not a memory disk
        checkpoints, seconds = Checkpoints(Path(folder) / "checkpoints"), []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            checkpoints.save({**learner.tensors(), **momentum}, {"exemplars": learner.memory.exemplars})
            seconds.append(time.perf_counter() - started)
    learner.teacher = None
    return median(seconds[1:]) / (60 * CheckpointSpec().minutes)


def share_in_a_run_of_digits(epochs: int | None) -> float:
    """Seconds in all checkpoints of a short run over its own, where the ends of tasks are what costs."""
    overrides = [{"train": {"epochs": epochs}}] if epochs else []
    settings = resolve("lucir+cscct", "digits", overrides=overrides)
    dataset = load_dataset(settings, None, print)
    spent, real = [], Checkpoints.save

    def timed(*arguments: Any) -> None:
        started = time.perf_counter()
        real(*arguments)
        spent.append(time.perf_counter() - started)

    Checkpoints.save = timed  # type: ignore[method-assign]
    try:
        with TemporaryDirectory(dir=".") as folder:
            started = time.perf_counter()
            execute(complete(settings, dataset), dataset, RunFolder(Path(folder) / "run"), Unheard(), print)
            return sum(spent) / (time.perf_counter() - started)
    finally:
        Checkpoints.save = real  # type: ignore[method-assign]


def measure(size: Size) -> dict[str, Any]:
    # Memory first, while this process is small: a child's peak starts at what its parent held when starting it.
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        peak = child.submit(peak_of_a_run, size).result()
    rates, learner, teacher = loops(size)
    against = {name: median(np.divide(rates["loop"], rates[name]).tolist()) for name in rates}
    small = share_of_terms(learner, teacher, random_batch(size.batch), size.rounds)
    large = share_of_terms(learner, teacher, random_batch(8 * size.batch), min(3, size.rounds))
    saving = share_of_checkpoints(learner, teacher, size.rounds)
    digits = share_in_a_run_of_digits(1 if size.rounds == 1 else None)
    figures = (against["floor"], small, large, against["textbook"], peak, saving, digits)
    ratios = dict(zip(GOALS, figures, strict=True))
    met = {name: ratios[name] >= goal if more else ratios[name] <= goal for name, (goal, more) in GOALS.items()}
    ratios["loop / textbook without its tests"] = against["textbook without its tests"]
    return {"ratios": ratios, "met": met, "images_per_second": rates}


def environment(size: Size) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.processor())
    hardware = {"processor": model, "cores": os.cpu_count(), "load": os.getloadavg()[0], "system": platform.platform()}
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cscct": cscct.__version__}
    return {**hardware, **versions, **vars(size)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed as ratios, and memory, on random images of CIFAR's shape.")
    parser.add_argument("--tiny", action="store_true", help="only see that it works: small network, few images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--batches", type=int, default=11, metavar="N", help="of 128 in a round; 28 are an epoch")
    parser.add_argument("--threads", type=int, metavar="N", help="of torch; all cores if not given")
    args = parser.parse_args()
    per_exemplar = OLD + 25 * NEW  # training images in a round
    size = Size(args.threads or torch.get_num_threads(), min(20, max(1, round(args.batches * 128 / per_exemplar))))
    if args.tiny:
        size = replace(size, depth=8, batch=16, exemplars=1, rounds=1, stored=5)
    here = environment(size)
    print(*(f"{name}: {value}" for name, value in here.items()), sep="\n")
    print(f"a round: {size.exemplars / 20:.0%} of an epoch's {20 * per_exemplar} images and {100 * (OLD + NEW)} tests")
    if args.tiny:
        print("tiny: batches are not what the names say, and the figures mean nothing")
    found = measure(size)
    print(f"\n{'':38}{'measured':>10}{'goal':>9}  met")
    for name, value in found["ratios"].items():
        goal, more = GOALS.get(name, (None, True))
        told = f"{'>=' if more else '<='} {goal:g}" if goal else ""
        print(f"{name:38}{value:>10.4f}{told:>9}  {'' if goal is None else 'yes' if found['met'][name] else 'NO'}")
    text = json.dumps({"environment": here, "tiny": args.tiny, **found}, indent=2)
    print(f"\n{text}")
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
