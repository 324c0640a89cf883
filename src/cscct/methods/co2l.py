"""Co2L, contrastive continual learning (Cha et al., ICCV 2021).

A perceptron projects the features of two views of each image. New samples are contrasted with all others, exemplars are
never anchors, and the similarities of all samples are distilled: see `losses/contrast.py`. The classifier is then
trained on a balanced set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ..lazy import lazy_module
from ..losses.common import at_least_float32
from ..structs import Output
from .base import Method, register
from .extension import Extension, TaskContext, register_extension
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")


@register_extension
@dataclass(frozen=True)
class Projection(Extension):
    """Two-layer perceptron on the features, and its copy after the previous task."""

    width: PositiveInt = 128
    """Dimension of the projected features."""

    name = "projection"

    def begin_task(self, context: TaskContext) -> None:
        """Copy the perceptron for the teacher; initialise it in the first task."""
        features, generator = context.network.head.features, context.generator("projection")
        for name, rows in (("hidden", features), ("out", self.width)):
            if context.task.is_first:
                weight = torch.empty(rows, features + 1)  # the last column is the bias
                self.state[name] = weight.uniform_(-1, 1, generator=generator).mul_(features**-0.5).to(context.device)
            self.state[f"previous.{name}"] = self.state[name].detach().clone()

    def parameters(self) -> Sequence[Tensor]:
        """Return the weights of the perceptron."""
        return [self.state[name].requires_grad_() for name in ("hidden", "out")]

    def project(self, views: Sequence[Output], previous: bool = False) -> Tensor:
        """Return the projected features of all views, one view after the other."""
        values = at_least_float32(torch.cat([view.features for view in views]))
        for name in ("hidden", "out"):
            weight = self.state[f"previous.{name}" if previous else name].to(values.dtype)
            values = F.linear(values if name == "hidden" else values.relu(), weight[:, :-1], weight[:, -1])
        return values


_CLASSIFIER = {"epochs": 100, "lr": 0.1, "reset": "head", "batch_norm": "frozen", "first_task": True}
CO2L = register(
    Method(
        name="co2l",
        summary="contrastive loss with new samples as anchors, distilled similarities; then a balanced classifier",
        family="distillation",
        settings={
            "network": LINEAR_NETWORK,
            "loss": {"asymmetric_contrast": {"weight": 0.5 / 0.07}, "relation_distillation": {}},  # as in the code
            "train": {"views": 2},
            "extension": {"projection": {}},
            "stages": {"classifier": {**_CLASSIFIER, "loss": {"cross_entropy": {}}}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
