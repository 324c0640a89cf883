"""Speed while another process occupies a core: training, `learn` and `predict`.

Each row of measurements comes from a separate process, because OpenMP reads its settings when it is loaded. The
processes take turns on the same images. The fair share is the speed of one thread fewer on a quiet machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any

import cscct  # before torch, because it sets how threads wait
from cscct.threads import WAITING, available_cores

# isort: split
import torch

from parts import Listener, Size, random_dataset

WORKS = ("training", "learn", "predict")
BEFORE, NOW, SHARE = "default of OpenMP", "default of cscct", "fair share"
OPENMP = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}  # the defaults of OpenMP, without the settings of cscct


def training(size: Size) -> Callable[[], float]:
    """Return a function that runs training steps of ResNet-32 in the first task of CIFAR-100, with data, loss and
    optimiser."""
    from cscct.config import resolve
    from cscct.learn.build import build_learner, build_stream
    from cscct.learn.protocol import complete

    dataset = random_dataset([size.batch * (1 if size.tiny else 4) // 2] * 4, [1] * 4)
    common: dict[str, Any] = {
        "protocol": {"base": 2, "step": 2},
        "network": {"depth": size.depth},
        "train": {"epochs": 1, "batch_size": size.batch},
        "runtime": {"device": "cpu", "threads": size.threads},
        "data": {"order": "natural"},
    }
    settings = complete(resolve("icarl", "cifar100", overrides=[common]), dataset)
    learner = build_learner(settings, dataset, build_stream(settings, dataset, warn=lambda _: None))
    learner.network.head.grow(learner.network.head.init_weights(2, torch.Generator().manual_seed(0)))

    def epoch() -> float:
        listener, context = Listener(), learner.context(learner.stream.tasks[0])
        learner._run_stage("train", learner.config.train, context, (listener, None, None))
        return listener.rates[-1]

    return epoch


def photos(folder: Path) -> dict[str, Callable[[], float]]:
    """Return functions that learn photographs, including the fit, and that predict."""
    paths = sorted(folder.glob("*.jpg"))
    labels = [f"class {number % 2}" for number in range(len(paths))]
    model = cscct.IncrementalClassifier().learn(paths, labels)

    def rate(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return len(paths) / (time.perf_counter() - started)

    return {
        "learn": lambda: rate(lambda: cscct.IncrementalClassifier().learn(paths, labels)),
        "predict": lambda: rate(lambda: model.predict(paths)),
    }


def serve(size: Size, folder: Path, lines: IO[str]) -> None:
    """Execute the workload named on each line of standard input and print its images per second."""
    torch.set_num_threads(size.threads)
    works = {"training": training(size), **photos(folder)}
    for work in works.values():
        work()
    print("ready", flush=True)
    for line in lines:
        print(works[line.strip()](), flush=True)


@contextmanager
def worker(size: Size, folder: Path, waiting: dict[str, str]) -> Iterator[Callable[[str], float]]:
    """Start a process that measures. Returns a function from the name of a workload to images per second."""
    unset = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", *WAITING)
    environment = {key: value for key, value in os.environ.items() if key not in unset} | waiting
    command = [sys.executable, __file__, json.dumps(asdict(size)), str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def answer(work: str) -> float:
            print(work, file=process.stdin, flush=True)
            return float(process.stdout.readline())  # type: ignore[union-attr]

        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a measuring process failed; see its messages above")
            yield answer
        finally:
            process.kill()


@contextmanager
def load(busy: bool) -> Iterator[None]:
    """Start a process that occupies a core."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Return images per second of each round, by workload, waiting mode and load."""
    from large_images import photographs

    rates: dict[str, dict[str, list[float]]] = {work: {} for work in WORKS}
    others = replace(size, threads=max(1, min(size.threads, available_cores() - 1)))
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "photographs"
        photographs(folder, 500, 375, 4 if size.tiny else 64)
        with (
            worker(size, folder, OPENMP) as before,
            worker(size, folder, {}) as now,
            worker(others, folder, {}) as share,
        ):
            for _ in range(size.rounds):
                for busy in (False, True):
                    kinds = {BEFORE: before, NOW: now, **({} if busy else {SHARE: share})}
                    with load(busy):
                        for work in WORKS:
                            for kind, answer in kinds.items():
                                name = f"{kind}, {'busy' if busy else 'quiet'}"
                                rates[work].setdefault(name, []).append(answer(work))
    for work, kinds in rates.items():
        say(f"{work}: " + ", ".join(f"{kind} {median(values):.0f}" for kind, values in kinds.items()))
    return {"images/s": rates}


def ratios(results: dict[str, Any]) -> dict[str, float]:
    figures = {}
    for work, rates in results["images/s"].items():
        share = f"{SHARE}, quiet"
        figures[f"one core busy: {work} / fair share"] = _paired(rates, f"{NOW}, busy", share)
        figures[f"one core busy: {work} / fair share, {BEFORE}"] = _paired(rates, f"{BEFORE}, busy", share)
        figures[f"quiet: {work} / {BEFORE}"] = _paired(rates, f"{NOW}, quiet", f"{BEFORE}, quiet")
    return figures


def _paired(rates: dict[str, list[float]], above: str, below: str) -> float:
    """Return the median ratio of two rates of the same round."""
    return median(one / other for one, other in zip(rates[above], rates[below], strict=True))


if __name__ == "__main__":
    serve(Size(**json.loads(sys.argv[1])), Path(sys.argv[2]), sys.stdin)
