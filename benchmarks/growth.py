"""Growth of time and memory with batch size, number of classes, exemplars and image size.

Memory is the peak of a separate process, minus its memory before the measurement.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from cscct import IncrementalClassifier
from cscct.classifier.store import ModelFolder
from cscct.config import resolve
from cscct.features import herd, nearest_mean
from cscct.learn.device import keep_freed_memory
from cscct.losses import WeightedSum, controlled_transfer, cross_space_clustering
from cscct.nets import build_network, for_inference
from cscct.structs import Output, Step, Task
from parts import Size, random_batch

HOW_TO_START = "spawn"  # start method of the processes whose memory is measured
DIMENSIONS = 512  # of the features, as in ResNet-18


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    return _megabytes("VmHWM")  # getrusage would include the memory before exec


def held() -> float:
    """Return the current memory of this process in megabytes."""
    return _megabytes("VmRSS")


def _megabytes(name: str) -> float:
    status = Path("/proc/self/status")
    if not status.exists():  # not Linux: the peak is used instead
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def milliseconds(function: Callable[[], object], least: int = 3, seconds: float = 0.5) -> float:
    """Return the median time of several calls, after a warm-up call."""
    function()
    spent: list[float] = []
    while len(spent) < least or sum(spent) < seconds:
        started = time.perf_counter()
        function()
        spent.append(time.perf_counter() - started)
    return 1000 * median(spent)


def losses_of_a_batch(k: int, threads: int) -> dict[str, float]:
    """Measure CSC and CT, forward and backward, on random features."""
    torch.set_num_threads(threads)

    def once(k: int) -> None:
        batch = random_batch(k, side=1)
        student = torch.randn(k, DIMENSIONS, requires_grad=True)
        teacher = torch.randn(k, DIMENSIONS)
        csc = cross_space_clustering(student, teacher, batch.labels)
        (csc + controlled_transfer(student, teacher, batch.is_new)).backward()

    once(16)
    before = held()
    once(k)
    most = peak() - before
    return {"CSC+CT, ms": milliseconds(lambda: once(k)), "CSC+CT, MB": most}


def step_of_a_batch(
    k: int, threads: int, depth: int, side: int = 32, backbone: str = "lucir-resnet"
) -> dict[str, float]:
    """Measure a step of LUCIR+CSCCT without the optimiser: student forward and backward, teacher, losses."""
    torch.set_num_threads(threads)
    keep_freed_memory()  # as in every run
    task, batch = Task(1, 50, 5), random_batch(k, side=side)
    network = build_network(backbone, depth, 3, "cosine", 1, torch.Generator().manual_seed(0))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.head.grow(torch.randn(50, network.head.features))
    teacher = for_inference(network)
    network.head.grow(torch.randn(5, network.head.features))
    total = WeightedSum(resolve("lucir+cscct", "cifar100").terms, task)

    def once() -> None:
        network.zero_grad(set_to_none=True)
        with torch.no_grad():
            before = teacher(batch.images)
        total(Step(batch, network(batch.images), before, task))[0].backward()

    before = held()
    seconds = milliseconds(once, least=1, seconds=2.0) / 1000
    return {"step, images/s": k / seconds, "step, MB": peak() - before}


def losses_of_classes(classes: int) -> dict[str, float]:
    """Measure head and losses, forward and backward, on random features, and the nearest-mean predictor."""
    results = {}
    n_new = max(1, classes // 11)
    task, batch = Task(1, classes - n_new, n_new), random_batch(128, classes, side=1)
    for method, head, rows in (("icarl", "cosine", 1), ("lucir", "cosine", 1), ("podnet", "proxies", 10)):
        network = build_network("lucir-resnet", 8, 3, head, rows, torch.Generator().manual_seed(0))
        network.head.grow(torch.randn(task.n_old * rows, network.head.features))
        old_head = network.frozen_copy().head
        network.head.grow(torch.randn(n_new * rows, network.head.features))
        network.head.trainable(old=False, scale=True)
        terms = [term for term in resolve(f"{method}+cscct", "cifar100").terms if term.name != "pod_spatial"]
        total = WeightedSum(terms, task)
        features = torch.randn(128, network.head.features, requires_grad=True)
        then = torch.randn(128, network.head.features)

        def once(
            head: Any = network.head, old: Any = old_head, now: Any = features, then: Any = then, total: Any = total
        ) -> None:
            with torch.no_grad():
                teacher = Output((), then, old(then), old.scale)
            student = Output((), now, head(now), head.scale)
            total(Step(batch, student, teacher, task))[0].backward()

        results[f"{method}+cscct, ms"] = milliseconds(once)
    means = F.normalize(torch.randn(classes, 64), dim=1)
    features = torch.randn(128, 64)
    results["nearest mean, ms"] = milliseconds(lambda: nearest_mean(means).predict(features))
    return results


def ranking_of_exemplars(count: int) -> dict[str, float]:
    features = torch.randn(500, 64, generator=torch.Generator().manual_seed(0)) + 1
    return {
        f"{form}, ms": milliseconds(lambda form=form: herd(features, count, form)) for form in ("official", "icarl")
    }  # type: ignore[misc]


def saving_of_versions(counts: Sequence[int]) -> dict[str, dict[str, float]]:
    """Measure the time to store a slightly changed model of 100 classes, for growing numbers of stored versions."""
    features = np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32)
    model = IncrementalClassifier(None, method="ncm").learn(features, [str(i % 100) for i in range(200)])
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as name:
        folder, spent, sizes = ModelFolder(name), list[float](), list[int]()
        for version in range(1, max(counts) + 1):
            model.rename({"99" if version % 2 else "renamed": "renamed" if version % 2 else "99"})
            before, started = _stored_bytes(folder.path), time.process_time()
            folder.commit(model)
            spent.append(1000 * (time.process_time() - started))
            sizes.append(_stored_bytes(folder.path) - before)
            if version in counts:
                last = slice(-min(5, version), None)
                found[str(version)] = {"save, CPU ms": median(spent[last]), "added, kB": median(sizes[last]) / 1000}
    return found


def adding_classes(each: int, counts: Sequence[int]) -> dict[str, dict[str, float]]:
    """Measure a model that learns one class at a time from feature vectors, and then predicts."""
    torch.set_num_threads(1)
    rng, model, spent = np.random.default_rng(0), IncrementalClassifier(None), list[float]()
    before, results = held(), dict[str, dict[str, float]]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns about many labels for few images
        for label in range(1, max(counts) + 1):
            rows = 2 * rng.normal(size=64) + rng.normal(size=(each, 64))
            spent.append(_cpu_seconds(lambda rows=rows, label=label: model.learn(rows, [label] * each, quiet=True)))  # type: ignore[misc]
            if label in counts:
                results[str(label)] = {
                    "median of 50 steps, CPU ms": 1000 * median(spent[-50:]),
                    "all steps, CPU s": sum(spent),
                    "all steps, CPU ms per image": 1000 * sum(spent) / (each * label),
                    "held, MB": held() - before,
                }
    return results


def photos_into_classes(pairs: Sequence[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Measure how a model with the features of ten photos of each class learns a few photos of a new class, and then
    predicts, which needs a fit. The features have as many dimensions as those of the default network."""
    torch.set_num_threads(1)
    rng, results = np.random.default_rng(0), dict[str, dict[str, float]]()
    for photos, classes in pairs:
        rows = np.repeat(2 * rng.normal(size=(classes, 1280)), 10, axis=0) + rng.normal(size=(10 * classes, 1280))
        model = IncrementalClassifier(None).learn(rows, [i // 10 for i in range(len(rows))], quiet=True)
        new = 2 * rng.normal(size=1280) + rng.normal(size=(photos, 1280))
        results[f"{photos} into {classes}"] = {
            "learn, CPU s": _cpu_seconds(lambda new=new, model=model: model.learn(new, [-1] * len(new), quiet=True)),  # type: ignore[misc]
            "first prediction, CPU s": _cpu_seconds(lambda new=new, model=model: model.predict(new)),  # type: ignore[misc]
        }
    return results


def _cpu_seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def _stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    batches = (64, 128, 256, 512, 1024, 2048)
    sides, classes, exemplars = (32, 64, 128, 224), (10, 30, 100, 300, 1000), (5, 10, 20, 50, 100, 400)
    images, depth = 16, size.depth
    if size.tiny:
        batches, sides, classes, exemplars, images = (16, 32), (32,), (10,), (5,), 2
    results: dict[str, Any] = {"batch": {}, "image side": {}}
    for k in batches:
        results["batch"][str(k)] = {
            **alone(losses_of_a_batch, k, size.threads),
            **alone(step_of_a_batch, k, size.threads, depth),
        }
        say(f"batch {k}: " + describe(results["batch"][str(k)]))
    for side in sides:
        values = alone(step_of_a_batch, images, size.threads, 18, side, "lucir-resnet18")
        results["image side"][str(side)] = values
        say(f"images of {side} pixels: " + describe(values))
    steps, pairs = ((2, 4), [(2, 3)]) if size.tiny else ((10, 100, 500, 1000, 2000), [(6, 500), (5, 1100)])
    works: dict[str, Callable[[], dict[str, Any]]] = {
        "classes": lambda: {str(count): losses_of_classes(count) for count in classes},
        "exemplars": lambda: {str(count): ranking_of_exemplars(count) for count in exemplars},
        "versions": lambda: saving_of_versions((2, 4) if size.tiny else (10, 100, 200)),
        "classes of 1": lambda: alone(adding_classes, 1, steps),
        "classes of 5": lambda: alone(adding_classes, 5, [count for count in steps if count <= 1000]),
        "photos": lambda: alone(photos_into_classes, pairs),
    }
    for name, work in works.items():
        results[name] = work()
        for count, values in results[name].items():
            say(f"{count} {name}: " + describe(values))
    return results


def alone(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Run a measurement in a separate process."""
    with ProcessPoolExecutor(1, get_context(HOW_TO_START)) as child:
        return child.submit(function, *arguments).result()


def describe(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def ratios(results: dict[str, Any]) -> dict[str, float]:
    half, largest = sorted(results["batch"], key=int)[-2:]
    time = results["batch"][largest]["CSC+CT, ms"] / results["batch"][half]["CSC+CT, ms"]
    return {
        f"CSC+CT at k={largest}, d={DIMENSIONS}, MB": results["batch"][largest]["CSC+CT, MB"],
        f"CSC+CT, k={largest} / k={half}": time,
    }
