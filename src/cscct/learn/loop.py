"""The only batch loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from ..errors import RunFailed
from ..losses import WeightedSum
from ..nets import Network
from ..recipe import Stage
from ..structs import Batch, Step, Task
from .precision import FULL, Precision
from .team import ALONE, Team


class Listener(Protocol):
    """Who wants to know how training goes."""

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...


@dataclass
class Place:
    """Where a stage stands, between two steps."""

    epoch: int = 0
    step: int = 0  # steps of the epoch that are done
    images: int = 0  # and the images in them
    sums: dict[str, float] = field(default_factory=dict)  # losses of the epoch so far, times images


Buffers = list[Tensor | None]  # the optimiser's momentum, parameter by parameter
Keep = Callable[[str, Place, Callable[[], Buffers]], None]  # hears of every step; may write a checkpoint


@dataclass(frozen=True)
class Work:
    """What one stage trains, on what, towards what."""

    name: str  # "train" or "finetune"
    task: Task
    network: Network
    teacher: Network | None
    loss: WeightedSum
    parameters: list[nn.Parameter]
    batches: Callable[[int, int], Iterable[Batch]]  # of an epoch, from a step on
    train_mode: bool  # False keeps the batch-norm statistics as they are
    team: Team = ALONE
    precision: Precision = FULL


def run_stage(
    work: Work,
    stage: Stage,
    listener: Listener,
    keep: Keep | None = None,
    start: tuple[Place, Buffers] | None = None,
) -> None:
    """Train from the beginning, or from where an earlier process stood."""
    place, buffers = start or (Place(), [])
    optimiser = _SGD(work.parameters, stage, buffers)
    work.network.train(work.train_mode)
    network = work.team.together(work.network)
    while place.epoch < stage.epochs:
        started, before = time.perf_counter(), place.images
        rate = stage.schedule.rate(stage.lr, place.epoch, stage.epochs)
        for batch in work.batches(place.epoch, place.step):
            size = work.team.total(len(batch.labels))
            total, parts = _losses(work, network, batch, size)
            values = _finite(parts, work, place)
            optimiser.forget_gradients()
            total.backward()
            if stage.clamp_gradients is not None:
                nn.utils.clip_grad_value_(work.parameters, stage.clamp_gradients)
            optimiser.step(rate)
            place.step += 1
            place.images += size
            for name, value in values.items():
                place.sums[name] = place.sums.get(name, 0.0) + value * size
            listener.step(work.task, work.name, place.epoch, stage.epochs, size, values)
            if keep is not None:
                keep(work.name, place, lambda: optimiser.buffers)
        seconds = time.perf_counter() - started
        listener.epoch(_epoch_record(work, place, rate, (place.images - before) / seconds))
        place = Place(epoch=place.epoch + 1)


def _epoch_record(work: Work, place: Place, rate: float, images_per_second: float) -> dict[str, Any]:
    losses = {name: value / place.images for name, value in place.sums.items()}
    return {
        "task": work.task.index,
        "stage": work.name,
        "epoch": place.epoch,
        "lr": rate,
        "loss": sum(losses.values()),
        "losses": losses,
        "images_per_second": images_per_second,
    }


class _SGD:
    """torch's own SGD by its function: to build an object of its class imports torch's compiler, which takes more than
    a second in every process."""

    def __init__(self, parameters: list[nn.Parameter], stage: Stage, buffers: Buffers):
        self.parameters, self.stage = parameters, stage
        pairs = zip(parameters, buffers or [None] * len(parameters), strict=True)
        self.buffers = [None if buffer is None else torch.empty_like(one).copy_(buffer) for one, buffer in pairs]

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        buffers = [self.buffers[i] for i in moved]
        sgd(
            [self.parameters[i] for i in moved],
            [parameter.grad for parameter in self.parameters if parameter.grad is not None],
            buffers,
            lr=lr,
            momentum=self.stage.momentum,
            weight_decay=self.stage.weight_decay,
            dampening=0,
            nesterov=False,
            maximize=False,
        )
        for i, buffer in zip(moved, buffers, strict=True):
            self.buffers[i] = buffer


def _losses(work: Work, network: nn.Module, batch: Batch, size: int) -> tuple[Tensor, dict[str, Tensor]]:
    own, team = len(batch.labels), work.team
    teacher = None
    with work.precision():
        student = network(batch.images).first(own)
        if work.teacher is not None and work.loss.needs_teacher:
            with torch.no_grad():
                teacher = work.teacher(batch.images).first(own)
    step = Step(batch, student, teacher, work.task)
    try:
        whole = team.whole(step, size) if work.loss.needs_whole else None
        return work.loss(step, whole, team.weight(own, size))
    except ValueError as error:  # a loss that refuses what it is given
        raise RunFailed(f"Task {work.task.index + 1} cannot go on: {error}") from error


def _finite(parts: dict[str, Tensor], work: Work, place: Place) -> dict[str, float]:
    found = work.team.sum(torch.stack([part.detach() for part in parts.values()])) / work.team.size
    values = dict(zip(parts, found.tolist(), strict=True))
    for name, value in values.items():
        if not math.isfinite(value):
            raise RunFailed(
                f"The loss {name} became {value} in task {work.task.index + 1}, {work.name} epoch {place.epoch + 1}, "
                f"step {place.step + 1}. Try a smaller learning rate (train.lr) or train.clamp_gradients."
            )
    return values
