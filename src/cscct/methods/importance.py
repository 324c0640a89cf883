"""Importances of parameters, shared by the methods that regularise the change of parameters (EWC, SI, MAS).

The loss is ½ Σ_i Ω_i (θ_i − θ*_i)², with importances Ω and the parameters θ* after the previous task. It covers the
backbone: the weights of old classes are frozen (`network.freeze_old`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveFloat

from ..lazy import lazy_module
from ..losses import Term
from ..losses import register as register_term
from ..structs import Batch, Output, Step
from .base import Method
from .extension import Extension, TaskContext
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")


def importance_method(name: str, weight: float, importance: str) -> Method:
    """Return a method with a penalty on the change of parameters, without a memory.

    The new classes compete with each other only: with all classes, the scores of old classes, which have no images,
    would sink whatever the penalty is.

    Args:
        name: Name of the method and of its extension.
        weight: Weight of the penalty.
        importance: What the importances are, for the summary.
    """
    return Method(
        name=name,
        summary=f"penalty on the change of parameters, weighted by {importance}; no memory",
        family="regularisation",
        settings={
            "network": {**LINEAR_NETWORK, "freeze_old": True},
            "loss": {"new_cross_entropy": {"classes": "task"}, "parameter_drift": {"weight": weight}},
            "extension": {name: {}},
            "memory": {"per_class": 0},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )


def mean_over_images(
    context: TaskContext, count: int, scalar: Callable[[Output, Batch], Tensor], function: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Return the mean, over single images of the task, of a function of the gradient of a scalar.

    Args:
        context: The task. Its network is in evaluation mode afterwards.
        count: Number of images.
        scalar: Function of the output for an image.
        function: Function of the gradient with respect to a parameter, element by element.

    Returns:
        One tensor for each parameter of the backbone, by name.
    """
    network = context.network.eval()
    parameters = dict(network.backbone.requires_grad_(True).named_parameters())
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    images = 0
    for batch in context.batches("new", 1, count):
        images += 1
        gradients = torch.autograd.grad(scalar(network(batch.images), batch), list(parameters.values()))
        for accumulated, gradient in zip(total.values(), gradients, strict=True):
            accumulated += function(gradient)
    return {name: accumulated / images for name, accumulated in total.items()}


@dataclass(frozen=True)
class Importances(Extension):
    """Base class of extensions with an importance for each parameter. A subclass computes them in `end_task`."""

    decay: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Factor of the importances of earlier tasks, at the end of each task."""
    largest: PositiveFloat = 5.0
    """Upper bound of an importance. Training diverges if the product of importance, weight of the loss and learning
    rate exceeds 2 (1 + momentum)."""

    def consolidate(self, context: TaskContext, importances: Mapping[str, Tensor]) -> None:
        """Add the importances of a task to those of earlier tasks, and store the parameters.

        Args:
            context: The task.
            importances: One tensor for each parameter of the backbone, by name.
        """
        for name, parameter in context.network.backbone.named_parameters():
            earlier = self.state.get(f"importance.{name}", torch.zeros_like(parameter))
            total = self.decay * earlier.detach() + importances[name].clamp(min=0)
            self.state[f"importance.{name}"] = total.clamp(max=self.largest)
            self.state[f"anchor.{name}"] = parameter.detach().clone()


@register_term
@dataclass(frozen=True)
class ParameterDrift(Term):
    """Half the squared change of the parameters since the previous task, weighted by their importances."""

    name = "parameter_drift"
    with_mixup = "same"
    reads_extension = True
    reads_teacher = False

    def value(self, step: Step) -> Tensor:
        """Return the unweighted loss of a step."""
        state, parameters = step.extension.state, step.context.network.backbone.named_parameters()
        changes = [(parameter, state[f"anchor.{name}"], state[f"importance.{name}"]) for name, parameter in parameters]
        return torch.stack([(omega * (now - before) ** 2).sum() for now, before, omega in changes]).sum() / 2
