"""The only batch loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.amp import GradScaler

from ..errors import RunFailed
from ..losses import WeightedSum
from ..methods import Extension, TaskContext
from ..nets import Network
from ..optim import build_optimizer
from ..specs import Stage
from ..structs import Batch, Output, SeenClasses, Step, Task
from .device import FULL_PRECISION, Precision
from .distributed import SINGLE_PROCESS, ProcessGroup

READING_INTERVAL = 20  # steps between two readings of the losses on a device that the CPU would have to wait for


class TrainingListener(Protocol):
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


OptimizerState = dict[str, Any]  # the `state_dict` of an optimiser, and that of the loss scaling under `scaler`
# Called after every step, may write a checkpoint. The position is up to date once the optimiser state was requested.
StepHook = Callable[[str, StagePosition, Callable[[], OptimizerState]], None]


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
    precision: Precision = FULL_PRECISION
    scaler: GradScaler = field(default_factory=partial(GradScaler, enabled=False))
    classes: SeenClasses | None = None  # None in the first task
    extension: Extension = field(default_factory=Extension)
    context: TaskContext = None  # type: ignore[assignment]  # required by extensions that read it
    generator: Callable[[int, int], Generator] = lambda epoch, step: Generator()


class LossReader:
    """Losses of an epoch: checks that they are finite, and adds them to the sums of the position.

    On a CPU, losses are read in every step, before the weights change. To read a value from another device, the CPU
    waits until the device has computed it; there, losses are read every `READING_INTERVAL` steps, before a checkpoint
    and at the end of the epoch.

    Args:
        inputs: The stage.
        position: Position in the stage. Its step and sums are read and updated.

    Attributes:
        values: Losses of the last step that was read, by name; empty before the first reading.
    """

    def __init__(self, inputs: StageInputs, position: StagePosition):
        self.inputs, self.position = inputs, position
        self.values: dict[str, float] = {}
        self._names: tuple[str, ...] = ()
        self._unread: list[tuple[int, int, Tensor]] = []  # step, images and losses, which may still be computed

    def add(self, parts: dict[str, Tensor], size: int) -> None:
        """Add the losses of a step, and read them if it is time.

        Args:
            parts: Weighted losses by name.
            size: Images of the step.

        Raises:
            RunFailed: If a loss that was read is not finite.
        """
        group = self.inputs.group
        losses = group.sum(torch.stack([part.detach() for part in parts.values()])) / group.size
        self._names = tuple(parts)
        self._unread.append((self.position.step + 1, size, losses))
        if losses.device.type == "cpu" or len(self._unread) >= READING_INTERVAL:
            self.read()

    def read(self) -> None:
        """Read the losses of the steps since the last reading.

        Raises:
            RunFailed: If one of them is not finite.
        """
        if not self._unread:
            return
        rows = torch.stack([losses for _, _, losses in self._unread]).tolist()
        sums = self.position.sums
        for (step, size, _), row in zip(self._unread, rows, strict=True):
            self.values = dict(zip(self._names, row, strict=True))
            for name, value in self.values.items():
                if not math.isfinite(value):
                    raise RunFailed(
                        f"The loss {name} became {value} in task {self.inputs.task.index + 1}, {self.inputs.name} "
                        f"epoch {self.position.epoch + 1}, step {step}. Try a smaller learning rate (train.lr) or "
                        "train.clip_grad_value."
                    )
                sums[name] = sums.get(name, 0.0) + value * size
        self._unread.clear()


def run_stage(
    inputs: StageInputs,
    stage: Stage,
    listener: TrainingListener,
    on_step: StepHook | None = None,
    start: tuple[StagePosition, OptimizerState] | None = None,
) -> None:
    """Train from the beginning, or from the position in a checkpoint."""
    optimizer = build_optimizer(inputs.parameters, stage)
    position = StagePosition()
    if start is not None:
        position, state = start
        inputs.scaler.load_state_dict(state.get("scaler", {}))
        optimizer.load_state_dict({key: value for key, value in state.items() if key != "scaler"})
    extension, scaler = inputs.extension, inputs.scaler
    prepares = type(extension).prepare_batch is not Extension.prepare_batch
    inputs.network.train(inputs.train_mode)
    network = inputs.group.wrap_network(inputs.network)
    while position.epoch < stage.epochs:
        started, before = time.perf_counter(), position.images
        rate = stage.schedule.rate(stage.lr, position.epoch, stage.epochs)
        for group in optimizer.param_groups:
            group["lr"] = rate
        losses = LossReader(inputs, position)
        for batch in inputs.batches(position.epoch, position.step):
            if prepares:
                batch = extension.prepare_batch(batch, inputs.generator(position.epoch, position.step))
            size = inputs.group.sum_sizes(len(batch.labels))
            total, parts = _losses(inputs, network, batch, size)
            losses.add(parts, size)
            optimizer.zero_grad()
            scaled = {name: scaler.scale(part) for name, part in parts.items()}
            extension.backward(scaler.scale(total), scaled, inputs.parameters)
            scaler.unscale_(optimizer)
            if stage.clip_grad_value is not None:
                nn.utils.clip_grad_value_(inputs.parameters, stage.clip_grad_value)
            scaler.step(optimizer)  # skipped if gradients are not finite
            scaler.update()
            inputs.network.head.constrain()
            extension.after_step(inputs.context)
            position.step += 1
            position.images += size
            listener.step(inputs.task, inputs.name, position.epoch, stage.epochs, size, losses.values)
            if on_step is not None:
                on_step(inputs.name, position, partial(_checked_state, optimizer, scaler, losses))
        losses.read()
        seconds = time.perf_counter() - started
        listener.epoch(_epoch_record(inputs, position, rate, (position.images - before) / seconds))
        position = StagePosition(epoch=position.epoch + 1)
    inputs.group.share_buffers(inputs.network)  # all go on with one network: teacher, herding, class means, tests


def _checked_state(optimizer: torch.optim.Optimizer, scaler: GradScaler, losses: LossReader) -> OptimizerState:
    """Return the state of the optimiser for a checkpoint, which is not written after a loss that is not finite."""
    losses.read()
    return optimizer.state_dict() | ({"scaler": scaler.state_dict()} if scaler.is_enabled() else {})


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
    teacher = second_teacher = None
    with inputs.precision():
        student, second = _outputs(network, batch)
        if inputs.teacher is not None and inputs.loss.needs_teacher:
            with torch.no_grad():
                teacher, second_teacher = _outputs(inputs.teacher, batch)
    extension = inputs.extension if type(inputs.extension) is not Extension else None
    step = Step(batch, student, teacher, inputs.task, inputs.classes, extension, inputs.context, second, second_teacher)
    try:
        whole = group.gather_step(step, size) if inputs.loss.needs_full_batch else None
        return inputs.loss(step, whole, group.loss_weight(own, size))
    except ValueError as error:  # a loss that refuses what it is given
        raise RunFailed(f"Task {inputs.task.index + 1} cannot go on: {error}") from error


def _outputs(network: nn.Module, batch: Batch) -> tuple[Output, Output | None]:
    """Return the outputs for the images of a batch and for their second view, if it has one, from one forward pass."""
    own, inputs = len(batch.labels), len(batch.images)  # a shard without a sample has one input
    if batch.second is None:
        return network(batch.images).first(own), None
    output: Output = network(torch.cat([batch.images, batch.second]))
    return output.rows(slice(0, own)), output.rows(slice(inputs, inputs + own))
