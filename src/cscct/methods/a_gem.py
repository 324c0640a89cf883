"""A-GEM (Chaudhry et al., ICLR 2019): g ← g − min(g·r, 0)/(r·r) r, with gradients g on new images, r on exemplars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .base import Method, register
from .extension import Extension, register_extension
from .replay import LINEAR_NETWORK

if TYPE_CHECKING:
    from torch import Tensor


@register_extension
@dataclass(frozen=True)
class AGEM(Extension):
    """Projection of the gradient on new images. The loss on exemplars is a constraint and is not minimised."""

    name = "a-gem"
    scaled_losses = True  # a common factor of both gradients does not change the projection

    def backward(self, total: Tensor, parts: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> None:
        """Set the projected gradient. In the first task, which has no exemplars, nothing is projected."""
        if (reference := parts.get("memory_cross_entropy")) is not None:
            reference.backward(retain_graph=True)
        constraint = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        (total if reference is None else total - reference).backward()
        pairs = [(p.grad, r) for p, r in zip(parameters, constraint, strict=True) if not (p.grad is None or r is None)]
        # Without a branch on the sign of the product: the CPU would have to wait for its value.
        product = sum(((g * r).sum() for g, r in pairs), total.new_zeros(()))
        square = sum(((r * r).sum() for _, r in pairs), total.new_zeros(()))
        factor = product.clamp(max=0) / square.clamp(min=1e-37)
        for g, r in pairs:
            g -= factor * r


_LOSS = {"new_cross_entropy": {"classes": "seen"}, "memory_cross_entropy": {"holds": "old"}}
_SETTINGS = {"network": LINEAR_NETWORK, "loss": _LOSS, "train": {"sampler": "replay"}}
_SUMMARY = "gradients on new images are projected so that the loss on exemplars does not increase"
register(Method("a-gem", _SUMMARY, {**_SETTINGS, "extension": {"a-gem": {}}}, "der++", family="gradient-based"))
