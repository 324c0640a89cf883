"""Classifiers that grow by task. The rows of old and of new classes are separate tensors, so that a frozen old row
is a tensor no optimiser holds: bit-identical through a task by construction."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn


class Head(nn.Module):
    """Weight rows of all classes, `rows_per_class` each, class-major. Subclasses turn features into scores."""

    bias = False

    def __init__(self, features: int, rows_per_class: int = 1):
        super().__init__()
        self.features, self.rows_per_class = features, rows_per_class
        self.old_weight = nn.Parameter(torch.empty(0, features), requires_grad=False)
        self.new_weight = nn.Parameter(torch.empty(0, features))
        if self.bias:
            self.old_bias = nn.Parameter(torch.empty(0), requires_grad=False)
            self.new_bias = nn.Parameter(torch.empty(0))
        self.scale = nn.Parameter(torch.ones(())) if self.has_scale else nn.Buffer(torch.ones(()))

    has_scale = True

    @property
    def classes(self) -> int:
        return (len(self.old_weight) + len(self.new_weight)) // self.rows_per_class

    @property
    def weight(self) -> Tensor:
        return torch.cat([self.old_weight, self.new_weight])

    def grow(self, new_rows: Tensor) -> None:
        """All present rows become old, `new_rows` (new classes × rows per class, features) become the new ones."""
        device = self.new_weight.device
        self.old_weight = nn.Parameter(self.weight.detach().clone())
        self.new_weight = nn.Parameter(new_rows.detach().to(device, self.old_weight.dtype).clone())
        if self.bias:
            self.old_bias = nn.Parameter(torch.cat([self.old_bias, self.new_bias]).detach())
            self.new_bias = nn.Parameter(torch.zeros(len(new_rows), device=device))

    def resize(self, tensors: Mapping[str, Tensor]) -> None:
        """Make room for weights of other sizes."""
        for name, parameter in list(self.named_parameters()):
            if parameter.shape != tensors[name].shape:
                room = torch.empty_like(tensors[name], device=parameter.device)
                setattr(self, name, nn.Parameter(room, parameter.requires_grad))

    def fresh_rows(self, classes: int, generator: Generator) -> Tensor:
        """Rows for classes of which nothing is known: normal, with deviation 1/√d."""
        rows = torch.empty(classes * self.rows_per_class, self.features)
        return nn.init.kaiming_normal_(rows, nonlinearity="linear", generator=generator)

    def trainable(self, *, old: bool, scale: bool) -> list[nn.Parameter]:
        """The parameters a stage optimises. The rest keep their bits, and collect no gradient."""
        chosen = [self.new_weight, *([self.new_bias] if self.bias else [])]
        if old:
            chosen += [self.old_weight, *([self.old_bias] if self.bias else [])]
        if scale and isinstance(self.scale, nn.Parameter):
            chosen.append(self.scale)
        for parameter in self.parameters():
            parameter.requires_grad_(any(parameter is kept for kept in chosen))
        return [parameter for parameter in chosen if parameter.numel()]

    def constrain(self) -> None:
        """Called after every step of training, for heads whose weights are restricted. Changes them in place."""

    def forward(self, features: Tensor) -> Tensor:
        raise NotImplementedError


class LinearHead(Head):
    """w·f + b, as the original iCaRL."""

    bias = True
    has_scale = False

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, torch.cat([self.old_bias, self.new_bias]))


class PositiveHead(Head):
    """w·f without bias, weights clipped at zero from below, for WA.

    Where features are positive too, the norm of a row says how much its class is favoured.
    """

    has_scale = False

    def constrain(self) -> None:
        """Clip."""
        with torch.no_grad():
            self.old_weight.clamp_(min=0)
            self.new_weight.clamp_(min=0)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight)


class CosineHead(Head):
    """cos(f, w); the learned scale multiplies it into logits."""

    def fresh_rows(self, classes: int, generator: Generator) -> Tensor:
        """As LUCIR has it: uniform within ±1/√d."""
        bound = self.features**-0.5
        rows = torch.empty(classes * self.rows_per_class, self.features)
        return nn.init.uniform_(rows, -bound, bound, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class ProxyHead(Head):
    """Several proxies a class: −‖f̂ − ŵ‖² for each, averaged within a class with its own softmax as weights."""

    def forward(self, features: Tensor) -> Tensor:
        cosines = F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))
        raw = (2 * cosines - 2).unflatten(1, (-1, self.rows_per_class))  # (k, classes, proxies)
        return (raw.softmax(dim=2) * raw).sum(dim=2)
