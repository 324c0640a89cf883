"""Data-parallel processes: how a batch is divided and how results are combined.

Every process has the complete network, memory and record; only images are divided. The shards of a batch are
consecutive and depend on its size alone, so every process knows the shard of every other process.
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
from ..structs import Output, Step

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")
PARENT_SECONDS = 5.0  # time for a process to end by itself after its parent process is gone


def shard_sizes(count: int, size: int) -> list[int]:
    """Return how many of `count` items each of `size` processes gets: almost equal, the first ones more."""
    return [count // size + (rank < count % size) for rank in range(size)]


class ProcessGroup(Protocol):
    """The processes of a run, seen from one of them."""

    rank: int
    size: int

    @property
    def is_leader(self) -> bool:
        """Whether this process is rank 0, which writes files and prints."""
        ...

    def shard(self, count: int) -> slice:
        """Return the items of `count` that belong to this process."""
        ...

    def sum_sizes(self, own: int) -> int:
        """Return the sum of a number over all processes."""
        ...

    def loss_weight(self, own: int, count: int) -> float:
        """Return the factor for the mean loss of this process's shard.

        With it, the average gradient over processes is the gradient of the mean loss over all `count` samples. `own`
        is the size of the shard.
        """
        ...

    def gather_step(self, step: Step, count: int) -> Step:
        """Return the step with the samples of all processes. Gradients flow back to those of this process."""
        ...

    def gather_rows(self, own: Tensor, count: int) -> Tensor:
        """Return the rows of all processes in order of their ranks, without gradient."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        ...

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        ...

    def broadcast(self, make: Callable[[], T]) -> T:
        """Return the result of `make` in rank 0 to all processes."""
        ...

    def wrap_network(self, network: nn.Module) -> nn.Module:
        """Return the network with gradients that are averaged over processes."""
        ...

    def share_buffers(self, network: nn.Module) -> None:
        """Copy the buffers of rank 0 to all processes: batch-norm statistics depend on the images of a process."""
        ...


class SingleProcess:
    """The group of a run with a single process."""

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
        """Do nothing."""


SINGLE_PROCESS = SingleProcess()


class DistributedGroup:
    """The group of several processes, started by lightning-fabric or torchrun."""

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
        sizes, mixed = shard_sizes(count, self.size), step.batch.mixed
        batch = step.batch._replace(
            images=step.batch.images[:0],
            labels=self._cat(step.batch.labels, sizes),
            is_new=self._cat(step.batch.is_new.to(torch.uint8), sizes).bool(),
            stored=None if step.batch.stored is None else self._cat(step.batch.stored, sizes),
            second=None if step.batch.second is None else step.batch.second[:0],
            mixed=mixed and mixed._replace(labels=self._cat(mixed.labels, sizes)),
        )
        outputs = ("student", "teacher", "second", "second_teacher")
        gathered = {name: self._gather_output(getattr(step, name), sizes) for name in outputs}
        return step._replace(batch=batch, **gathered)

    def _gather_output(self, output: Output | None, sizes: list[int]) -> Any:
        """Return features and scores of all processes. Maps, which no loss over a batch reads, are omitted."""
        if output is None:
            return None
        features, scores = (
            _Gather.apply(at_least_float32(rows), sizes, self.rank) for rows in (output.features, output.scores)
        )
        return Output((), features, scores, output.scale)

    def gather_rows(self, own: Tensor, count: int) -> Tensor:
        return self._cat(own, shard_sizes(count, self.size))

    def _cat(self, own: Tensor, sizes: list[int]) -> Tensor:
        """Gather rows on the device of the group, because NCCL requires tensors on a GPU."""
        return gather(own.to(self.fabric.device), sizes).to(own.device)

    def sum(self, values: Tensor) -> Tensor:
        total = values.to(self.fabric.device, copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def any(self, flag: bool) -> bool:
        return bool(self.sum(torch.tensor(int(flag))) > 0)

    def broadcast(self, make: Callable[[], T]) -> T:
        objects: list[Any] = [make() if self.is_leader else None]
        dist.broadcast_object_list(objects, src=0)
        result: T = objects[0]
        return result

    def wrap_network(self, network: nn.Module) -> nn.Module:
        return self.fabric.setup_module(network, move_to_device=False)

    def share_buffers(self, network: nn.Module) -> None:
        for buffer in network.buffers():
            shared = buffer.to(self.fabric.device, copy=True)
            dist.broadcast(shared, src=0)
            buffer.copy_(shared)


def gather(own: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the rows of all processes in order of their ranks.

    Args:
        own: Rows of this process, (n, ...).
        sizes: Number of rows of each process.

    Returns:
        All rows, (sum of sizes, ...), without gradient.
    """
    padded = own.new_zeros((max(sizes), *own.shape[1:]))
    padded[: len(own)] = own.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class _Gather(torch.autograd.Function):
    """Gather rows with a gradient for those of this process.

    Every process computes the same loss over all rows, so it has the full gradient of its rows without communication.
    Gradients are averaged over processes later, hence the factor.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, sizes: list[int], rank: int) -> Tensor:
        ctx.sizes, ctx.rank = sizes, rank
        return gather(own, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        start = sum(ctx.sizes[: ctx.rank])
        return gradient[start : start + ctx.sizes[ctx.rank]] * len(ctx.sizes), None, None


def launch(devices: int, nodes: int, accelerator: str, minutes: float = 30.0) -> ProcessGroup:
    """Start the processes of a run, which repeat the command of this process.

    Args:
        devices: Processes on each machine.
        nodes: Number of machines.
        accelerator: `cpu`, `cuda` or `mps`.
        minutes: How long a process waits for the others.

    Returns:
        The group of processes.
    """
    if devices * nodes == 1:
        return SingleProcess()
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    if os.environ.get("LOCAL_RANK", "0") != "0":
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # cscct prints the number of processes
    backend = "nccl" if accelerator == "cuda" else "gloo"
    strategy = DDPStrategy(process_group_backend=backend, timeout=timedelta(minutes=minutes))
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return DistributedGroup(fabric)


def _end_with_parent(parent: int) -> None:
    """End this process after its parent: it would otherwise wait for lost processes until the timeout."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(PARENT_SECONDS)
    os._exit(1)


LOST_PROCESS = ("connection closed by peer", "connection reset", "gloo", "nccl", "broken pipe", "timed out")


@contextmanager
def explain_lost_processes() -> Iterator[None]:
    """Turn the error of a broken connection, caused by the end of another process, into a `RunFailed`."""
    try:
        yield
    except RuntimeError as error:
        if not dist.is_initialized() or not any(text in str(error).lower() for text in LOST_PROCESS):
            raise
        raise RunFailed(
            "Another process of this run has ended, so this one cannot continue. `cscct resume RUN_DIR` continues from "
            "the last checkpoint, with any number of processes (--devices)."
        ) from error
