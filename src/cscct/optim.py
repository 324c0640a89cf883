"""Optimisers by name. Each is torch's own function, and holds its state as plain tensors, so that a checkpoint is
tensors and JSON: to build an object of `torch.optim` imports torch's compiler, which takes more than a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from .lazy import lazy_module
from .registry import Registry
from .specs import Stage

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import adamw as torch_adamw
    from torch.optim import sgd as torch_sgd
else:
    torch = lazy_module("torch")
    torch_adamw, torch_sgd = lazy_module("torch.optim.adamw"), lazy_module("torch.optim.sgd")

State = list["Tensor | None"]  # for each slot (momentum, ...) one tensor per parameter; None before its first step


class Optimizer:
    """Subclass, name the tensors kept for each parameter in `slots`, write `update`, and add it to `OPTIMIZERS`."""

    slots: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parameters: list[nn.Parameter], stage: Stage, state: Sequence[Tensor | None] = ()):
        """state: of an earlier process that stood in the same stage."""
        self.parameters, self.stage = parameters, stage
        self.state: State = [None] * (len(parameters) * len(self.slots))
        for i, kept in enumerate(state):
            like = parameters[i % len(parameters)]
            if kept is not None:
                self.state[i] = torch.empty_like(like).copy_(kept) if kept.shape == like.shape else kept.clone()

    def clear_gradients(self) -> None:
        """Before `backward`."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, lr: float) -> None:
        """Move every parameter that has a gradient."""
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        places = [[slot * len(self.parameters) + i for i in moved] for slot in range(len(self.slots))]
        slots = [[self.state[place] for place in row] for row in places]
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        with torch.no_grad():
            self.update([self.parameters[i] for i in moved], gradients, slots, lr)
        for row, slot in zip(places, slots, strict=True):
            for place, kept in zip(row, slot, strict=True):
                self.state[place] = kept

    def update(self, parameters: list[nn.Parameter], gradients: list[Tensor], slots: list[State], lr: float) -> None:
        """Change parameters and slots in place. slots: a list for each name in `slots`, an entry for each parameter."""
        raise NotImplementedError


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")


@OPTIMIZERS.register("sgd")
class SGD(Optimizer):
    """Stochastic gradient descent with momentum; weight decay is part of the gradient."""

    slots = ("momentum",)

    def update(self, parameters: list[nn.Parameter], gradients: list[Tensor], slots: list[State], lr: float) -> None:
        """One step of `torch.optim.sgd.sgd`."""
        torch_sgd.sgd(
            list(parameters),
            gradients,
            slots[0],
            lr=lr,
            momentum=self.stage.momentum,
            weight_decay=self.stage.weight_decay,
            dampening=0,
            nesterov=False,
            maximize=False,
        )


@OPTIMIZERS.register("adamw")
class AdamW(Optimizer):
    """Adam with decoupled weight decay; betas 0.9 and 0.999 and epsilon 1e-8, as torch has them by default."""

    slots = ("mean", "square", "step")

    def update(self, parameters: list[nn.Parameter], gradients: list[Tensor], slots: list[State], lr: float) -> None:
        """One step of `torch.optim.adamw.adamw`."""
        means, squares, steps = slots
        for i, parameter in enumerate(parameters):
            if steps[i] is None:
                means[i], squares[i] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                steps[i] = torch.zeros((), dtype=torch.float32)
        torch_adamw.adamw(
            list(parameters),
            gradients,
            [one for one in means if one is not None],
            [one for one in squares if one is not None],
            [],
            [one for one in steps if one is not None],
            foreach=False,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=lr,
            weight_decay=self.stage.weight_decay,
            eps=1e-8,
            maximize=False,
        )
