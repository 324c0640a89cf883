"""The only batch loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import RunFailed
from ..losses import WeightedSum
from ..nets import Network
from ..optim import OPTIMIZERS
from ..specs import Stage
from ..structs import Batch, SeenClasses, Step, Task
from .distributed import SINGLE_PROCESS, ProcessGroup
from .precision import FULL, Precision


class Listener(Protocol):
    """Callbacks during training."""

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...


@dataclass
class StagePosition:
    """Where a stage stands, between two steps."""

    epoch: int = 0
    step: int = 0  # steps of the epoch that are done
    images: int = 0  # and the images in them
    sums: dict[str, float] = field(default_factory=dict)  # losses of the epoch so far, times images


MomentumBuffers = list[Tensor | None]  # the optimiser's state, as `Optimizer.state` has it
StepHook = Callable[
    [str, StagePosition, Callable[[], MomentumBuffers]], None
]  # hears of every step; may write a checkpoint


@dataclass(frozen=True)
class StageInputs:
    """What one stage trains, on what, towards what."""

    name: str  # "train" or "finetune"
    task: Task
    network: Network
    teacher: Network | None
    loss: WeightedSum
    parameters: list[nn.Parameter]
    batches: Callable[[int, int], Iterable[Batch]]  # of an epoch, from a step on
    train_mode: bool  # False keeps the batch-norm statistics as they are
    group: ProcessGroup = SINGLE_PROCESS
    precision: Precision = FULL
    classes: SeenClasses | None = None  # None in the first task


def run_stage(
    inputs: StageInputs,
    stage: Stage,
    listener: Listener,
    on_step: StepHook | None = None,
    start: tuple[StagePosition, MomentumBuffers] | None = None,
) -> None:
    """Train from the beginning, or from the position in a checkpoint."""
    position, buffers = start or (StagePosition(), [])
    optimiser = OPTIMIZERS[stage.optimizer](inputs.parameters, stage, buffers)
    inputs.network.train(inputs.train_mode)
    network = inputs.group.wrap_network(inputs.network)
    while position.epoch < stage.epochs:
        started, before = time.perf_counter(), position.images
        rate = stage.schedule.rate(stage.lr, position.epoch, stage.epochs)
        for batch in inputs.batches(position.epoch, position.step):
            size = inputs.group.sum_sizes(len(batch.labels))
            total, parts = _losses(inputs, network, batch, size)
            values = _finite(parts, inputs, position)
            optimiser.clear_gradients()
            total.backward()
            if stage.clamp_gradients is not None:
                nn.utils.clip_grad_value_(inputs.parameters, stage.clamp_gradients)
            optimiser.step(rate)
            inputs.network.head.constrain()
            position.step += 1
            position.images += size
            for name, value in values.items():
                position.sums[name] = position.sums.get(name, 0.0) + value * size
            listener.step(inputs.task, inputs.name, position.epoch, stage.epochs, size, values)
            if on_step is not None:
                on_step(inputs.name, position, lambda: optimiser.state)
        seconds = time.perf_counter() - started
        listener.epoch(_epoch_record(inputs, position, rate, (position.images - before) / seconds))
        position = StagePosition(epoch=position.epoch + 1)
    inputs.group.share_buffers(inputs.network)  # all go on with one network: teacher, herding, class means, tests


def _epoch_record(
    inputs: StageInputs, position: StagePosition, rate: float, images_per_second: float
) -> dict[str, Any]:
    losses = {name: value / position.images for name, value in position.sums.items()}
    return {
        "task": inputs.task.index,
        "stage": inputs.name,
        "epoch": position.epoch,
        "lr": rate,
        "loss": sum(losses.values()),
        "losses": losses,
        "images_per_second": images_per_second,
    }


def _losses(inputs: StageInputs, network: nn.Module, batch: Batch, size: int) -> tuple[Tensor, dict[str, Tensor]]:
    own, group = len(batch.labels), inputs.group
    teacher = None
    with inputs.precision():
        student = network(batch.images).first(own)
        if inputs.teacher is not None and inputs.loss.needs_teacher:
            with torch.no_grad():
                teacher = inputs.teacher(batch.images).first(own)
    step = Step(batch, student, teacher, inputs.task, inputs.classes)
    try:
        whole = group.gather_step(step, size) if inputs.loss.needs_whole_batch else None
        return inputs.loss(step, whole, group.loss_weight(own, size))
    except ValueError as error:  # a loss that refuses what it is given
        raise RunFailed(f"Task {inputs.task.index + 1} cannot go on: {error}") from error


def _finite(parts: dict[str, Tensor], inputs: StageInputs, position: StagePosition) -> dict[str, float]:
    found = inputs.group.sum(torch.stack([part.detach() for part in parts.values()])) / inputs.group.size
    values = dict(zip(parts, found.tolist(), strict=True))
    for name, value in values.items():
        if not math.isfinite(value):
            raise RunFailed(
                f"The loss {name} became {value} in task {inputs.task.index + 1}, {inputs.name} epoch "
                f"{position.epoch + 1}, step {position.step + 1}. Try a smaller learning rate (train.lr) or "
                "train.clamp_gradients."
            )
    return values
