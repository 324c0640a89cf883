"""Modules of users as backbones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Generator, Tensor, nn

from ..errors import UserError
from .registries import BACKBONES


class CustomBackbone(nn.Module):
    """Any module that gives features or maps, in the form that networks here expect: a tuple of maps, the last of which
    pools to the features.

    The module may return features (k, d), maps (k, c, h, w) as a tensor or a tuple with one for each stage, or a pair
    of features and maps. It tells the dimensions of its features by an attribute `features` or `num_features`.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        width = getattr(module, "features", None)
        width = width if isinstance(width, int) else getattr(module, "num_features", None)
        if not isinstance(width, int):
            raise UserError(
                f"The backbone {type(module).__name__} must tell how many features it gives, by an attribute "
                "`features` or `num_features`: a whole number."
            )
        self.features = width

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = _maps(self.module(images))
        if not maps or any(one.ndim != 4 for one in maps) or maps[-1].shape[1] != self.features:
            shapes = ", ".join(str(tuple(one.shape)) for one in maps)
            raise UserError(
                f"The backbone {type(self.module).__name__} must give features (k, {self.features}) or maps "
                f"(k, c, h, w) of which the last has {self.features} channels; it gives {shapes or 'nothing'}."
            )
        return maps


def _maps(output: Any) -> tuple[Tensor, ...]:
    if isinstance(output, Tensor):
        return (output[:, :, None, None] if output.ndim == 2 else output,)
    if isinstance(output, tuple | list) and len(output) == 2 and isinstance(output[1], tuple | list):
        features, maps = output
        return (*maps, features[:, :, None, None])
    return tuple(output)


def use_backbone(backbone: nn.Module | Callable[[int], nn.Module]) -> str:
    """Makes a module, or a function of the images' channels that builds one, known; returns the name for
    `network.backbone`. A module's own weights are where training starts."""
    kind = type(backbone) if isinstance(backbone, nn.Module) else backbone
    name = f"custom-{getattr(kind, '__name__', 'backbone')}"

    def build(channels: int, depth: int, generator: Generator) -> nn.Module:
        module = copy.deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone(channels)
        return CustomBackbone(module)

    BACKBONES[name] = build
    return name
