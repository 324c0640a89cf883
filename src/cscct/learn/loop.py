"""The only batch loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import RunFailed
from ..losses import WeightedSum
from ..nets import Network
from ..recipe import Stage
from ..structs import Batch, Step, Task


class Listener(Protocol):
    """Who wants to know how training goes."""

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Work:
    """What one stage trains, on what, towards what."""

    name: str  # "train" or "finetune"
    task: Task
    network: Network
    teacher: Network | None
    loss: WeightedSum
    parameters: list[nn.Parameter]
    batches: Callable[[int], Iterable[Batch]]  # of an epoch
    train_mode: bool  # False keeps the batch-norm statistics as they are


def run_stage(work: Work, stage: Stage, listener: Listener) -> None:
    optimiser = torch.optim.SGD(work.parameters, stage.lr, momentum=stage.momentum, weight_decay=stage.weight_decay)
    work.network.train(work.train_mode)
    for epoch in range(stage.epochs):
        started, images, sums = time.perf_counter(), 0, dict[str, float]()
        rate = stage.schedule.rate(stage.lr, epoch, stage.epochs)
        for group in optimiser.param_groups:
            group["lr"] = rate
        for number, batch in enumerate(work.batches(epoch)):
            total, parts = _losses(work, batch)
            values = _finite(parts, work, epoch, number)
            optimiser.zero_grad(set_to_none=True)
            total.backward()
            if stage.clamp_gradients is not None:
                nn.utils.clip_grad_value_(work.parameters, stage.clamp_gradients)
            optimiser.step()
            size = len(batch.labels)
            images += size
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value * size
            listener.step(work.task, work.name, epoch, stage.epochs, size, values)
        seconds = time.perf_counter() - started
        losses = {name: value / images for name, value in sums.items()}
        listener.epoch(
            {
                "task": work.task.index,
                "stage": work.name,
                "epoch": epoch,
                "lr": rate,
                "loss": sum(losses.values()),
                "losses": losses,
                "images_per_second": images / seconds,
            }
        )


def _losses(work: Work, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    student = work.network(batch.images)
    teacher = None
    if work.teacher is not None and work.loss.needs_teacher:
        with torch.no_grad():
            teacher = work.teacher(batch.images)
    try:
        return work.loss(Step(batch, student, teacher, work.task))
    except ValueError as error:  # a loss that refuses what it is given
        raise RunFailed(f"Task {work.task.index + 1} cannot go on: {error}") from error


def _finite(parts: dict[str, Tensor], work: Work, epoch: int, number: int) -> dict[str, float]:
    values = dict(zip(parts, torch.stack([part.detach() for part in parts.values()]).tolist(), strict=True))
    for name, value in values.items():
        if not math.isfinite(value):
            raise RunFailed(
                f"The loss {name} became {value} in task {work.task.index + 1}, {work.name} epoch {epoch + 1}, step "
                f"{number + 1}. Try a smaller learning rate (train.lr) or gradient clamping (train.clamp_gradients)."
            )
    return values
