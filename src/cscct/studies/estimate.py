"""How long a run may take, before it has begun: its multiplications at an assumed speed, and what every step costs.

Only a rule of thumb, and only for CPUs. Once runs of the same plan are finished, what they took corrects it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..config import Settings
from ..data.registry import DATASETS
from ..data.tasks import split_tasks
from ..structs import Task

START_SECONDS = 4.0  # of a process: importing, reading data, building the network
# Of each layer in a step of training, whatever its size: small networks spend most of their time on it.
LAYER_SECONDS = 0.3e-3
FLOPS = 40e9  # a second and core, as measured with these small networks on a core of a server, others busy too
# Forward and backward, the previous network's forward, forward alone.
TRAIN, TEACHER, READ = 3.0, 1.0, 1.0
MANY = 10**9


def seconds(settings: Settings) -> tuple[float, float] | None:
    """Of the first task, and of all that comes after; None where the dataset does not say how large it is."""
    kind = DATASETS.get(settings.dataset)
    if kind is None or kind.extent is None or kind.num_classes is None:
        return None
    classes, extent, data = settings.data.classes or kind.num_classes, kind.extent, settings.data
    train, test = min(data.train_per_class or MANY, extent.train), min(data.test_per_class or MANY, extent.test)
    base = min(settings.protocol.base or (classes + 1) // 2, classes)
    tasks = split_tasks(classes, base, settings.protocol.step or max(1, (classes - base + 4) // 5))
    speed = FLOPS * max(1, settings.runtime.threads) / (2 * _multiplications(settings, extent.size))
    times = [
        _passes(settings, task, train, test) / speed + _steps(settings, task, train) * _step_seconds(settings, task)
        for task in tasks
    ]
    return times[0], sum(times[1:])


def rule_holds(settings: Settings) -> bool:
    """Whether `seconds` means something before any run has been measured: for the residual networks, on a CPU."""
    return "resnet" in settings.network.backbone and settings.runtime.device not in ("cuda", "mps")


def _steps(settings: Settings, task: Task, train: int) -> float:
    """Steps of training in a task."""
    if not settings.network.trained:
        return 0
    quota = min(settings.memory.quota(task.n_seen), train)
    steps = settings.train.epochs * settings.train.steps(task.n_new * train + task.n_old * quota)
    if settings.finetune is not None and not task.is_first:
        steps += settings.finetune.epochs * settings.finetune.steps(task.n_seen * quota)
    return steps


def _step_seconds(settings: Settings, task: Task) -> float:
    """What a step costs beside its multiplications."""
    return LAYER_SECONDS * settings.network.depth * (1.0 if task.is_first else (TRAIN + TEACHER) / TRAIN)


def _passes(settings: Settings, task: Task, train: int, test: int) -> float:
    """Forward passes that a task costs."""
    quota, new = min(settings.memory.quota(task.n_seen), train), task.n_new * train
    if not settings.network.trained:
        return READ * (new + task.n_seen * test)
    images = new + task.n_old * quota
    cost = settings.train.epochs * images * (TRAIN if task.is_first else TRAIN + TEACHER)
    if settings.finetune is not None and not task.is_first:
        cost += settings.finetune.epochs * task.n_seen * quota * (READ + TEACHER)
        cost += new * READ
    herding = new * (1 if task.is_first else 2)
    return cost + READ * (herding + task.n_seen * (2 * quota + test))


def _multiplications(settings: Settings, native: int) -> float:
    """Of one image on its way through the backbone; all of these networks are made of two 3×3 convolutions a block."""
    size, network = settings.data.transform.size or native, settings.network
    widths: tuple[int, ...]
    if network.backbone.endswith("18"):
        widths, blocks = (64, 128, 256, 512), 2
        size //= 4 if network.backbone.startswith("lucir") else 2
        total = 3.0 * 64 * 9 * (4 * size * size)
    else:
        widths, blocks = (16, 32, 64), (network.depth - 2) // 6
        total = 3.0 * 16 * 9 * size * size
    before = widths[0]
    for stage, width in enumerate(widths):
        side = max(1, size >> stage)
        total += 9 * side * side * (before * width + (2 * blocks - 1) * width * width)
        before = width
    return total


def measured_ratio(finished: Sequence[tuple[Settings, Mapping[str, Any]]]) -> float | None:
    """What finished runs took over what they were thought to take, the first task aside: it may have been shared."""
    ratios = []
    for settings, result in finished:
        expected = seconds(settings)
        if expected is not None and expected[1] > 0:
            ratios.append(sum(task["seconds"] for task in result["tasks"][1:]) / expected[1])
    return statistics.median(ratios) if ratios else None
