"""One batch over several processes: who computes which part, and how the parts come together again.

Every process holds the whole network, the whole memory and the whole record; only the images are divided. A batch is
cut into consecutive shards by its size alone, so every process knows the shard of every other without asking.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import RunFailed
from ..losses.common import at_least_float32
from ..structs import Batch, Output, Step

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")
PARENT_SECONDS = 5.0  # in which a process has to end by itself when the one that started it is gone


def shard_sizes(count: int, size: int) -> list[int]:
    """How many of `count` things each of `size` processes takes: as equal as can be, the first ones more."""
    return [count // size + (rank < count % size) for rank in range(size)]


class ProcessGroup(Protocol):
    rank: int
    size: int

    @property
    def is_leader(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        ...

    def shard(self, count: int) -> slice:
        """This process's share of so many things."""
        ...

    def sum_sizes(self, own: int) -> int:
        """Of all processes."""
        ...

    def loss_weight(self, own: int, count: int) -> float:
        """What a mean over one's own share is to be multiplied by, so that the average over processes of its gradients
        is the gradient of the mean over all."""
        ...

    def gather_step(self, step: Step, count: int) -> Step:
        """The step with the samples of all processes; gradients flow back to one's own."""
        ...

    def gather_rows(self, own: Tensor, count: int) -> Tensor:
        """The rows of all processes, in order, without gradient."""
        ...

    def sum(self, values: Tensor) -> Tensor: ...

    def any(self, flag: bool) -> bool: ...

    def broadcast(self, make: Callable[[], T]) -> T:
        """What the leading process makes, for all."""
        ...

    def wrap_network(self, network: nn.Module) -> nn.Module:
        """The network whose gradients are averaged over the processes."""
        ...

    def share_buffers(self, network: nn.Module) -> None:
        """Give all processes the leader's buffers: batch-norm statistics, which each has from its own images."""
        ...


class SingleProcess:
    """One process, to which everything belongs."""

    rank, size, is_leader = 0, 1, True

    def shard(self, count: int) -> slice:
        return slice(0, count)

    def sum_sizes(self, own: int) -> int:
        return own

    def loss_weight(self, own: int, count: int) -> float:
        return 1.0

    def gather_step(self, step: Step, count: int) -> Step:
        return step

    def gather_rows(self, own: Tensor, count: int) -> Tensor:
        return own

    def sum(self, values: Tensor) -> Tensor:
        return values

    def any(self, flag: bool) -> bool:
        return flag

    def broadcast(self, make: Callable[[], T]) -> T:
        return make()

    def wrap_network(self, network: nn.Module) -> nn.Module:
        return network

    def share_buffers(self, network: nn.Module) -> None:
        """There is nobody to share with."""


SINGLE_PROCESS = SingleProcess()


class DistributedGroup:
    """Several processes, started by lightning-fabric or by torchrun."""

    def __init__(self, fabric: Fabric):
        self.fabric = fabric
        self.rank, self.size = fabric.global_rank, fabric.world_size

    @property
    def is_leader(self) -> bool:
        return self.rank == 0

    def shard(self, count: int) -> slice:
        sizes = shard_sizes(count, self.size)
        return slice(sum(sizes[: self.rank]), sum(sizes[: self.rank + 1]))

    def sum_sizes(self, own: int) -> int:
        return int(self.sum(torch.tensor(own)))

    def loss_weight(self, own: int, count: int) -> float:
        return self.size * own / count

    def gather_step(self, step: Step, count: int) -> Step:
        sizes = shard_sizes(count, self.size)
        batch = Batch(
            images=step.batch.images[:0],
            labels=self._cat(step.batch.labels, sizes),
            is_new=self._cat(step.batch.is_new.to(torch.uint8), sizes).bool(),
            carried=None if step.batch.carried is None else self._cat(step.batch.carried, sizes),
        )
        student, teacher = (self._whole_output(one, sizes) for one in (step.student, step.teacher))
        return Step(batch, student, teacher, step.task, step.classes)

    def _whole_output(self, output: Output | None, sizes: list[int]) -> Any:
        """Features and scores, which the losses over a batch read; maps stay where they are."""
        if output is None:
            return None
        features, scores = (
            _Gather.apply(at_least_float32(one), sizes, self.rank) for one in (output.features, output.scores)
        )
        return Output((), features, scores, output.scale)

    def gather_rows(self, own: Tensor, count: int) -> Tensor:
        return self._cat(own, shard_sizes(count, self.size))

    def _cat(self, own: Tensor, sizes: list[int]) -> Tensor:
        """By way of the group's device: GPUs exchange only what is on them."""
        return gather(own.to(self.fabric.device), sizes).to(own.device)

    def sum(self, values: Tensor) -> Tensor:
        total = values.to(self.fabric.device, copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def any(self, flag: bool) -> bool:
        return bool(self.sum(torch.tensor(int(flag))) > 0)

    def broadcast(self, make: Callable[[], T]) -> T:
        found: list[Any] = [make() if self.is_leader else None]
        dist.broadcast_object_list(found, src=0)
        result: T = found[0]
        return result

    def wrap_network(self, network: nn.Module) -> nn.Module:
        return self.fabric.setup_module(network, move_to_device=False)

    def share_buffers(self, network: nn.Module) -> None:
        for buffer in network.buffers():
            shared = buffer.to(self.fabric.device, copy=True)
            dist.broadcast(shared, src=0)
            buffer.copy_(shared)


def gather(own: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes, in their order. sizes: how many rows each has."""
    most = max(sizes)
    room = own.new_zeros((most, *own.shape[1:]))
    room[: len(own)] = own.detach()
    parts = [torch.empty_like(room) for _ in sizes]
    dist.all_gather(parts, room)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class _Gather(torch.autograd.Function):
    """Every process computes the same loss of all rows, so each has the full gradient of its own rows at hand: nothing
    is sent back. Gradients are averaged over processes later, hence the factor."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, sizes: list[int], rank: int) -> Tensor:
        ctx.sizes, ctx.rank = sizes, rank
        return gather(own, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        start = sum(ctx.sizes[: ctx.rank])
        return gradient[start : start + ctx.sizes[ctx.rank]] * len(ctx.sizes), None, None


def launch(devices: int, nodes: int, accelerator: str, minutes: float = 30.0) -> ProcessGroup:
    """The processes of a run: this one, and as many more as are asked for, which start by repeating the command."""
    if devices * nodes == 1:
        return SingleProcess()
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    if os.environ.get("LOCAL_RANK", "0") != "0":
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # cscct reports the number of processes itself
    backend = "nccl" if accelerator == "cuda" else "gloo"
    strategy = DDPStrategy(process_group_backend=backend, timeout=timedelta(minutes=minutes))
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return DistributedGroup(fabric)


def _end_with_parent(parent: int) -> None:
    """A process that waits for others hears nothing, and would wait for one that is gone for as long as `minutes`."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(PARENT_SECONDS)
    os._exit(1)


SIGNS = ("connection closed by peer", "connection reset", "gloo", "nccl", "broken pipe", "timed out")


@contextmanager
def explain_lost_processes() -> Iterator[None]:
    """A process of the group that ends breaks the connections of the others: they end too, with a sentence."""
    try:
        yield
    except RuntimeError as error:
        if not dist.is_initialized() or not any(sign in str(error).lower() for sign in SIGNS):
            raise
        raise RunFailed(
            "Another process of this run has ended, so this one cannot go on. What the last checkpoint holds is not "
            "lost: `cscct resume RUN_DIR` goes on, with as many processes as you like (--devices)."
        ) from error
