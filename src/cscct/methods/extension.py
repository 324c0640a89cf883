"""Extensions: what a method does, and remembers, beyond its losses.

An extension is data like a loss: a frozen dataclass whose fields are settings. Everything it remembers is in its
`state`, which is part of every checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import RunFailed
from ..lazy import lazy_module
from ..structs import Batch, Task

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

    from ..nets import Network
else:
    torch = lazy_module("torch")

STRIDES = "/strides"  # suffix of the strides of a tensor in a state dict: sums depend on the order of the elements
EXTENSIONS: dict[str, type[Extension]] = {}


@dataclass(frozen=True)
class TaskContext:
    """A task while it is learned, for extensions, loss terms and the functions in `AFTER_TASK`.

    Attributes:
        network: The network. At the start of a task it already has weights for the new classes.
        task: The task.
        held_back: Function that returns logits (n, classes seen) and labels (n,) of the images that are held back from
            training (`memory.held_back`), computed with the current network; equally many of each class.
        teacher: The network after the previous task; None in the first task.
        device: Device of the network.
        batches: Function (pool, batch size, count=None) that yields `Batch` objects of images without augmentation, in
            order, on the device. Pools are those of `train.pool`: `new`, `memory`, `all` and `balanced`. With a count,
            at most so many images, evenly spaced in the pool and thus of all its classes.
        generator: Function of a key that returns a generator for random numbers of this task.
    """

    network: Network
    task: Task
    held_back: Callable[[], tuple[Tensor, Tensor]]
    teacher: Network | None
    device: torch.device
    batches: Callable[..., Iterator[Batch]]
    generator: Callable[[str], Generator]

    def parameters(self) -> dict[str, Tensor]:
        """Return the parameters of the network by name."""
        return dict(self.network.named_parameters())


@dataclass(frozen=True)
class Extension:
    """State and events of a method. Its fields are the settings under `extension.NAME`.

    To add one, derive a frozen dataclass, set `name`, override the methods that are needed and apply
    `register_extension`. Assigning attributes is an error: keep tensors in `self.state`. It is empty when a run starts
    and is saved and restored with checkpoints, shared first tasks and models.

    Attributes:
        state: Tensors by name.
        name: Name of the extension in settings.
        several_processes: Whether the extension gives the right result if each process sees a share of a batch
            (`--devices N`). If not, or if the extension has `parameters`, such a run is rejected.
        scaled_losses: Whether an extension that overrides `backward` or `after_step` gives the right result if the
            losses are multiplied by a factor (`numerics.precision=fp16-mixed`). If not, such a run is rejected. The
            factor changes during training, and gradients may be infinite or NaN in a step, which is then skipped. In
            `backward`, losses and gradients have the factor; in `after_step`, gradients are without it.

    Examples:
        >>> from dataclasses import dataclass
        >>> from cscct.methods import Extension
        >>> @dataclass(frozen=True)
        ... class CountSteps(Extension):
        ...     "Number of training steps."
        ...     start: int = 0
        ...     name = "count_steps"
        ...     def begin_task(self, context):
        ...         self.state.setdefault("steps", torch.tensor(self.start))
        ...     def after_step(self, context):
        ...         self.state["steps"] += 1
    """

    # Read by the settings: unknown keys and wrong types are refused.
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
    name: ClassVar[str]
    several_processes: ClassVar[bool] = False
    scaled_losses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", {})  # not a field: it is no setting

    if TYPE_CHECKING:

        @property
        def state(self) -> dict[str, Tensor]: ...

    def begin_task(self, context: TaskContext) -> None:
        """Prepare a task. Called once for each task, after the network has grown and before training.

        Args:
            context: The task.
        """

    def end_task(self, context: TaskContext) -> None:
        """Complete a task. Called once for each task, after training and herding and before evaluation.

        The network may be changed.

        Args:
            context: The task.
        """

    def parameters(self) -> Sequence[Tensor]:
        """Return tensors of `state` that are trained together with the network. They must require gradients."""
        return ()

    def prepare_batch(self, batch: Batch, generator: Generator) -> Batch:
        """Return the batch that the networks and losses see. Called before the forward pass.

        Args:
            batch: Augmented images and labels.
            generator: Random numbers of this step. The same step of a resumed run gets the same numbers.
        """
        return batch

    def backward(self, total: Tensor, parts: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> None:
        """Compute the gradients of a step.

        Args:
            total: Sum of the weighted losses, a scalar.
            parts: Weighted losses by name, which add up to the total.
            parameters: Trained parameters. Their gradients are None before the call.
        """
        total.backward()

    def after_step(self, context: TaskContext) -> None:
        """Called after each step of the optimizer, while the gradients of the step are still available.

        Args:
            context: The task.
        """

    def accepts_scaled_losses(self) -> bool:
        """Return whether losses may be multiplied by a factor: what reads gradients must declare `scaled_losses`."""
        reads = self.replaces_backward() or type(self).after_step is not Extension.after_step
        return self.scaled_losses or not reads

    def replaces_backward(self) -> bool:
        """Return whether the extension overrides `backward`."""
        return type(self).backward is not Extension.backward

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state as tensors for a checkpoint, with the strides of tensors that are not contiguous.

        Raises:
            RunFailed: If a value is not a tensor.
        """
        for key, value in self.state.items():
            if not hasattr(value, "requires_grad"):
                raise RunFailed(
                    f"The extension {self.name} keeps a {type(value).__name__} under state[{key!r}], which cannot be "
                    "saved: keep tensors only."
                )
        strides = {key: torch.empty_like(value, device="meta").stride() for key, value in self.state.items()}
        return {key: value.detach() for key, value in self.state.items()} | {
            key + STRIDES: torch.tensor(strides[key])
            for key, value in self.state.items()
            if strides[key] != torch.empty(value.shape, device="meta").stride()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of a checkpoint.

        Args:
            tensors: Result of `state_dict`.
        """
        self.state.clear()
        for key, tensor in tensors.items():
            if not key.endswith(STRIDES):
                strides = tensors.get(key + STRIDES, torch.tensor(torch.empty(tensor.shape, device="meta").stride()))
                empty = torch.empty_strided(tensor.shape, strides.tolist(), dtype=tensor.dtype, device=tensor.device)
                self.state[key] = empty.copy_(tensor)


def register_extension(extension: type[Extension]) -> type[Extension]:
    """Register an extension under its name; usable as a class decorator.

    Args:
        extension: Frozen dataclass derived from `Extension` with a `name`.

    Returns:
        The same class.

    Raises:
        ValueError: If another class is registered under the name.
    """
    if EXTENSIONS.get(extension.name, extension) is not extension:
        raise ValueError(f"an extension named {extension.name} is already registered.")
    EXTENSIONS[extension.name] = extension
    return extension
