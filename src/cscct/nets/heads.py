"""Heads: classifiers whose number of classes grows with every task.

Weights of old and new classes are separate parameters. Frozen weights of old classes are not passed to the optimiser,
so they keep their bits during a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn


class Head(nn.Module):
    """Base class of heads. A subclass implements `forward`.

    Args:
        features: Dimension d of the features.
        proxies_per_class: Weight vectors per class.

    Attributes:
        bias: Class attribute: whether the head has one bias per weight vector.
        can_widen: Class attribute: whether `widen` supports more features, as a growing backbone needs.
        has_scale: Class attribute: whether the factor of the scores is learned.
        old_weight: Weights of the classes of earlier tasks, shape (old classes * proxies_per_class, d), class by class.
        new_weight: Weights of the classes of the current task, shape (new classes * proxies_per_class, d).
        scale: Factor that turns scores into logits, a scalar; 1 without `has_scale`.
    """

    bias = False
    can_widen = True

    def __init__(self, features: int, proxies_per_class: int = 1):
        super().__init__()
        self.features, self.proxies_per_class = features, proxies_per_class
        self.old_weight = nn.Parameter(torch.empty(0, features), requires_grad=False)
        self.new_weight = nn.Parameter(torch.empty(0, features))
        if self.bias:
            self.old_bias = nn.Parameter(torch.empty(0), requires_grad=False)
            self.new_bias = nn.Parameter(torch.empty(0))
        self.scale = nn.Parameter(torch.ones(())) if self.has_scale else nn.Buffer(torch.ones(()))

    has_scale = True

    @property
    def classes(self) -> int:
        """Number of classes."""
        return (len(self.old_weight) + len(self.new_weight)) // self.proxies_per_class

    @property
    def weight(self) -> Tensor:
        """Weights of all classes, shape (classes * proxies_per_class, d), class by class."""
        return torch.cat([self.old_weight, self.new_weight])

    def grow(self, new_rows: Tensor) -> None:
        """Add classes. All present weights become weights of old classes.

        Args:
            new_rows: Initial weights of the new classes, shape (new classes * proxies_per_class, d).
        """
        device = self.new_weight.device
        self.old_weight = nn.Parameter(self.weight.detach().clone())
        self.new_weight = nn.Parameter(new_rows.detach().to(device, self.old_weight.dtype).clone())
        if self.bias:
            self.old_bias = nn.Parameter(torch.cat([self.old_bias, self.new_bias]).detach())
            self.new_bias = nn.Parameter(torch.zeros(len(new_rows), device=device))

    def widen(self, features: int, generator: Generator) -> None:
        """Change the dimension of the features. Weights of present features stay, further ones are random.

        Args:
            features: New dimension; a smaller one removes the last features.
            generator: Source of the random numbers.
        """
        kept, self.features = min(self.features, features), features
        for name in ("old_weight", "new_weight"):
            weight: nn.Parameter = getattr(self, name)
            rows = weight.new_empty(len(weight), features)
            if len(weight):
                rows.copy_(self.init_weights(len(weight) // self.proxies_per_class, generator))
            rows[:, :kept] = weight.detach()[:, :kept]
            setattr(self, name, nn.Parameter(rows, weight.requires_grad))

    def reset(self, generator: Generator) -> None:
        """Set all weights to random values, and biases to zero.

        Args:
            generator: Source of the random numbers.
        """
        with torch.no_grad():
            rows = self.init_weights(self.classes, generator)
            self.old_weight.copy_(rows[: len(self.old_weight)])
            self.new_weight.copy_(rows[len(self.old_weight) :])
            if self.bias:
                self.old_bias.zero_()
                self.new_bias.zero_()

    def keep(self, classes: Sequence[int]) -> None:
        """Keep the weights of some classes, in the given order, and drop the others."""
        rows = [c * self.proxies_per_class + i for c in classes for i in range(self.proxies_per_class)]
        weight = self.weight.detach()[rows].clone()
        self.old_weight = nn.Parameter(weight, requires_grad=False)
        self.new_weight = nn.Parameter(weight[:0].clone())
        if self.bias:
            bias = torch.cat([self.old_bias, self.new_bias]).detach()[list(classes)].clone()
            self.old_bias = nn.Parameter(bias, requires_grad=False)
            self.new_bias = nn.Parameter(bias[:0].clone())

    def resize(self, tensors: Mapping[str, Tensor]) -> None:
        """Change the shapes of parameters and buffers so that a state dict can be loaded.

        Args:
            tensors: State dict of a head of the same type.
        """
        self.features = tensors["new_weight"].shape[1]
        for name, parameter in list(self.named_parameters()):
            if parameter.shape != tensors[name].shape:
                resized = torch.empty_like(tensors[name], device=parameter.device)
                setattr(self, name, nn.Parameter(resized, parameter.requires_grad))
        for name, buffer in list(self.named_buffers()):
            if buffer.shape != tensors[name].shape:
                setattr(self, name, torch.empty_like(tensors[name], device=buffer.device))

    def init_weights(self, classes: int, generator: Generator) -> Tensor:
        """Return random initial weights: normal, with standard deviation 1/√d.

        Args:
            classes: Number of new classes.
            generator: Source of the random numbers.

        Returns:
            Weights, shape (classes * proxies_per_class, d).
        """
        rows = torch.empty(classes * self.proxies_per_class, self.features)
        return nn.init.kaiming_normal_(rows, nonlinearity="linear", generator=generator)

    def trainable(self, *, old: bool, scale: bool) -> list[nn.Parameter]:
        """Return the parameters to optimise. The other parameters require no gradients.

        Args:
            old: Whether the weights of old classes are included.
            scale: Whether the learned scale is included.
        """
        selected = [self.new_weight, *([self.new_bias] if self.bias else [])]
        if old:
            selected += [self.old_weight, *([self.old_bias] if self.bias else [])]
        if scale and isinstance(self.scale, nn.Parameter):
            selected.append(self.scale)
        for parameter in self.parameters():
            parameter.requires_grad_(any(parameter is trained for trained in selected))
        return [parameter for parameter in selected if parameter.numel()]

    def constrain(self) -> None:
        """Project the weights onto the allowed values, in place. Called after every training step."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the class scores.

        Args:
            features: Features, shape (k, d).

        Returns:
            Scores, shape (k, classes). Logits are `scores * scale`.
        """
        raise NotImplementedError


class LinearHead(Head):
    """Inner products with the weight vectors plus biases, w·f + b, as in the original iCaRL."""

    bias = True
    has_scale = False

    def forward(self, features: Tensor) -> Tensor:
        """Return the class scores, see `Head.forward`."""
        return F.linear(features, self.weight, torch.cat([self.old_bias, self.new_bias]))


class RectifiedHead(LinearHead):
    """Linear head whose scores of old classes are rectified in evaluation mode, for IL2M.

    Attributes:
        newest: Whether a class belongs to the newest task, shape (classes,), bool.
        log_factor: Logarithms of the factors of the probabilities, shape (classes,); 0 for the newest classes.
    """

    def __init__(self, features: int, proxies_per_class: int = 1):
        super().__init__(features, proxies_per_class)
        self.newest: Tensor = nn.Buffer(torch.empty(0, dtype=torch.bool))
        self.log_factor: Tensor = nn.Buffer(torch.empty(0))

    def grow(self, new_rows: Tensor) -> None:
        """Add classes. Nothing is rectified until `rectify` is called."""
        super().grow(new_rows)
        self.log_factor = torch.zeros(self.classes, device=self.new_weight.device)
        self.newest = torch.arange(self.classes, device=self.new_weight.device) >= len(self.old_weight)

    def keep(self, classes: Sequence[int]) -> None:
        """Keep some classes, with their factors."""
        super().keep(classes)
        self.newest, self.log_factor = self.newest[list(classes)], self.log_factor[list(classes)]

    def rectify(self, factors: Tensor) -> None:
        """Set the factors of the probabilities of the old classes.

        Args:
            factors: Shape (old classes,), positive.
        """
        self.log_factor[: len(factors)] = factors.log()

    def forward(self, features: Tensor) -> Tensor:
        """Return the class scores, see `Head.forward`. They are rectified where a class of the newest task leads."""
        scores = super().forward(features)
        if self.training or not self.classes:
            return scores
        return scores + self.newest[scores.argmax(dim=1)][:, None] * self.log_factor


class PositiveHead(Head):
    """Inner products with non-negative weight vectors, without biases, for WA.

    If the features are non-negative, too, the norms of the weight vectors measure the bias towards a class.
    """

    has_scale = False

    def constrain(self) -> None:
        """Set negative weights to zero."""
        with torch.no_grad():
            self.old_weight.clamp_(min=0)
            self.new_weight.clamp_(min=0)

    def forward(self, features: Tensor) -> Tensor:
        """Return the class scores, see `Head.forward`."""
        return F.linear(features, self.weight)


class CosineHead(Head):
    """Cosine similarities to the weight vectors, cos(f, w). The scale is learned."""

    def init_weights(self, classes: int, generator: Generator) -> Tensor:
        """Return random initial weights as in LUCIR: uniform in ±1/√d. See `Head.init_weights`."""
        bound = self.features**-0.5
        rows = torch.empty(classes * self.proxies_per_class, self.features)
        return nn.init.uniform_(rows, -bound, bound, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return the class scores, see `Head.forward`."""
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class ProxyHead(Head):
    """Several proxies per class: the mean of −‖f̂ − ŵ‖² over the proxies of a class, with softmax weights."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the class scores, see `Head.forward`."""
        cosines = F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))
        raw = (2 * cosines - 2).unflatten(1, (-1, self.proxies_per_class))  # (k, classes, proxies)
        return (raw.softmax(dim=2) * raw).sum(dim=2)
