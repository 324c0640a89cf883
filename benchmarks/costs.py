"""Costs of CSC and CT, checkpoints and memory, and a comparison with a textbook training loop."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from cscct.config import CheckpointSpec, resolve
from cscct.learn.device import keep_freed_memory
from cscct.learn.learner import Learner
from cscct.learn.loop import StageInputs, run_stage
from cscct.learn.protocol import complete
from cscct.learn.state import state_tensors
from cscct.losses import WeightedSum
from cscct.nets import Network, build_network, for_inference
from cscct.runs.checkpoints import Checkpoints
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.structs import Batch, Step
from cscct.studies.datasets import load_dataset
from growth import alone, peak
from parts import OLD, Listener, Size, after_first_task, random_batch, random_dataset, second_task_dataset
from textbook import textbook_rounds, trained


def against_textbook(size: Size) -> tuple[dict[str, list[float]], Learner, Network]:
    """Return images per second of the loops of the package and of the textbook, measured in turns, one epoch each."""
    few = replace(size, exemplars=min(8, size.exemplars), epochs=size.rounds + 1)
    dataset = second_task_dataset(few)
    learner, settings = after_first_task("lucir+cscct", few, dataset)
    task, network, teacher = learner.stream.tasks[1], learner.network, learner.network.frozen_copy()
    # Its first step copies the network, after an epoch of the loop, when the head has weights of the new classes.
    textbook = textbook_rounds((network, teacher), dataset, settings.data.transform, settings.train, task)
    rates: dict[str, list[float]] = {"loop": [], "textbook": [], "textbook without its tests": []}

    def after_epoch() -> None:
        training, testing = next(textbook)
        rates["textbook"].append(len(dataset.train) / (training + testing))
        rates["textbook without its tests"].append(len(dataset.train) / training)

    learner.learn(task, Listener(after_epoch=after_epoch, rates=rates["loop"]))
    return {name: values[1:] for name, values in rates.items()}, learner, teacher


def share_of_terms(learner: Learner, teacher: Network, batch: Batch, rounds: int) -> float:
    """Return the time of CSC and CT, forward and backward, as a fraction of a complete step of LUCIR."""
    task, network, terms = learner.stream.tasks[1], learner.network, learner.config.terms
    teacher = learner.prepare(teacher)
    lucir = WeightedSum([term for term in terms if term.name not in ("csc", "ct")], task)
    added = WeightedSum([term for term in terms if term.name in ("csc", "ct")], task)
    work = StageInputs("train", task, network, teacher, lucir, trained(network), lambda *_: [batch], train_mode=True)
    with torch.no_grad():
        step = Step(batch, network(batch.images), teacher(batch.images), task)
    step.student.features.requires_grad_()
    shares = []
    for _ in range(rounds + 1):
        listener, seconds = Listener(), []
        run_stage(work, replace(learner.config.train, epochs=1), listener)
        for _ in range(20):
            started = time.perf_counter()
            step.student.features.grad = None
            added(step)[0].backward()
            seconds.append(time.perf_counter() - started)
        shares.append(median(seconds) * listener.rates[0] / len(batch.labels))
    return median(shares[1:])


def peak_of_a_run(size: Size) -> dict[str, float]:
    """Return the peak memory in gigabytes after the second task with all images of CIFAR-100 in memory. Training on a
    part of them saves time and hardly changes the memory."""
    stored = 5 if size.tiny else 500
    dataset = random_dataset([stored] * 100, [stored // 5] * 100)
    few = {"train_per_class": 60, "test_per_class": 20}
    learner, _ = after_first_task("lucir+cscct", replace(size, epochs=1), dataset, data=few)
    learner.learn(learner.stream.tasks[1], Listener())
    learner.evaluate(learner.stream.tasks[1])
    return {"GB": peak() / 1000}


def share_of_checkpoints(learner: Learner, teacher: Network, rounds: int) -> float:
    """Return the time of a checkpoint in the second task, flushed to disk, divided by the checkpoint interval."""
    learner.teacher = teacher
    momentum = {
        f"momentum.{i}": torch.zeros_like(parameter) for i, parameter in enumerate(learner.network.parameters())
    }
    with TemporaryDirectory(dir=".") as folder:  # a disk, not a file system in memory
        checkpoints, seconds = Checkpoints(Path(folder) / "checkpoints"), []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            checkpoints.save({**state_tensors(learner), **momentum}, {"exemplars": learner.memory.exemplars})
            seconds.append(time.perf_counter() - started)
    learner.teacher = None
    return median(seconds[1:]) / (60 * CheckpointSpec().minutes)


def share_in_a_run_of_digits(epochs: int | None) -> float:
    """Return the time of checkpoints in a short run as a fraction of its total time."""
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
            execute(complete(settings, dataset), dataset, RunFolder(Path(folder) / "run"), Listener(), print)
            return sum(spent) / (time.perf_counter() - started)
    finally:
        Checkpoints.save = real  # type: ignore[method-assign]


def forms_of_the_teacher(size: Size) -> dict[str, float]:
    """Return milliseconds of a forward pass for each form of the teacher, measured in turns, and the seconds of
    compilation."""
    torch.set_num_threads(size.threads)
    keep_freed_memory()  # as in every run
    network = build_network("lucir-resnet", size.depth, 3, "cosine", 1, torch.Generator().manual_seed(0))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.head.grow(torch.randn(OLD, network.head.features))
    forms = {"plain": for_inference(network, fold=False), "folded": for_inference(network)}
    images, results = random_batch(size.batch).images, {}
    with TemporaryDirectory() as cache, patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": cache}), torch.no_grad():
        if shutil.which("g++") and not size.tiny:
            forms["compiled"] = for_inference(network, compiled=True)
            started = time.perf_counter()
            for count in (size.batch, size.batch // 3):  # the last batch of an epoch is smaller
                forms["compiled"](images[:count])
            results["to compile, s"] = time.perf_counter() - started
        spent: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(4 * size.rounds + 1):
            for name, form in forms.items():
                started = time.perf_counter()
                form(images)
                spent[name].append(time.perf_counter() - started)
    return {**{f"{name}, ms": 1000 * median(values[1:]) for name, values in spent.items()}, **results}


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    # Memory first, while this process is small: the peak of a child process includes the memory of its parent.
    results: dict[str, Any] = {"peak memory, GB": alone(peak_of_a_run, size)["GB"]}
    say(f"peak memory: {results['peak memory, GB']:.2f} GB")
    size = replace(size, rounds=min(2, size.rounds))
    rates, learner, teacher = against_textbook(size)
    say("compared with the textbook")
    results["images/s"] = rates
    for batch in (size.batch, 8 * size.batch):
        results[f"CSC+CT / LUCIR step, batch {batch}"] = share_of_terms(
            learner, teacher, random_batch(batch), size.rounds
        )
    results["checkpoints / time, default interval"] = share_of_checkpoints(learner, teacher, size.rounds)
    results["checkpoints / time, a run of digits"] = share_in_a_run_of_digits(1 if size.tiny else None)
    results["teacher"] = alone(forms_of_the_teacher, size)
    for name, value in results.items():
        say(f"{name}: {value if isinstance(value, dict) else f'{value:.4f}'}")
    return results


def ratios(results: dict[str, Any]) -> dict[str, float]:
    rates = results["images/s"]
    figures = {name: value for name, value in results.items() if not isinstance(value, dict)}
    figures["teacher, folded / plain"] = results["teacher"]["folded, ms"] / results["teacher"]["plain, ms"]
    if "compiled, ms" in results["teacher"]:
        figures["teacher, compiled / plain"] = results["teacher"]["compiled, ms"] / results["teacher"]["plain, ms"]
    for name in ("textbook", "textbook without its tests"):
        figures[f"loop / {name}"] = median(np.divide(rates["loop"], rates[name]).tolist())
    return figures
