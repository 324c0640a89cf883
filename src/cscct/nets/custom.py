"""User modules as backbones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..errors import UserError
from ..storage import json_sha256, tensors_sha256
from .registries import BACKBONES


class CustomBackbone(nn.Module):
    """Adapter from a user module to a backbone, which returns a tuple of maps.

    The module returns features of shape (k, d), a map of shape (k, c, h, w), a tuple of maps, or a pair of features and
    maps. Its attribute `features` or `num_features` is the dimension of the features.

    Args:
        module: Module to adapt.

    Raises:
        UserError: If the module has no integer attribute `features` or `num_features`.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        width = getattr(module, "features", None)
        width = width if isinstance(width, int) else getattr(module, "num_features", None)
        if not isinstance(width, int):
            raise UserError(
                f"The backbone {type(module).__name__} needs an integer attribute `features` or `num_features`: the "
                "dimension of its features."
            )
        self.features = width

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the maps of the module. Features become a last map of one pixel.

        Args:
            images: Normalised images, shape (k, c, h, w).

        Raises:
            UserError: If the module returns neither features nor maps of the expected shape.
        """
        maps = _maps(self.module(images))
        valid = bool(maps) and all(isinstance(item, Tensor) and item.ndim == 4 for item in maps)
        if not valid or maps[-1].shape[1] != self.features:
            shapes = ", ".join(str(tuple(getattr(item, "shape", ()))) for item in maps)
            raise UserError(
                f"The backbone {type(self.module).__name__} must return features (k, {self.features}) or maps "
                f"(k, c, h, w) of which the last has {self.features} channels; it returned {shapes or 'nothing'}."
            )
        return maps


def _maps(output: Any) -> tuple[Any, ...]:
    if isinstance(output, Tensor):
        return (output[:, :, None, None] if output.ndim == 2 else output,)
    if not isinstance(output, tuple | list):
        return ()
    if len(output) == 2 and isinstance(output[0], Tensor) and output[0].ndim == 2:
        features, maps = output
        return (*([maps] if isinstance(maps, Tensor) else maps), features[:, :, None, None])
    return tuple(output)


def use_backbone(backbone: nn.Module | Callable[[int], nn.Module]) -> str:
    """Register a user module as a backbone.

    Args:
        backbone: Module whose weights are the initial weights, or function that takes the number of image channels and
            returns a module.

    Returns:
        Name for `network.backbone`. It ends with a hash of the structure of the module, and of its weights if it is a
        module, so that runs with different backbones are different runs.

    Raises:
        UserError: If the module has no integer attribute `features` or `num_features`.
    """

    def build(channels: int, depth: int, generator: Generator) -> nn.Module:
        if isinstance(backbone, nn.Module):
            return CustomBackbone(copy.deepcopy(backbone))
        with torch.random.fork_rng(devices=[]):  # modules use the global generator of torch for their initial weights
            torch.manual_seed(generator.initial_seed())
            return CustomBackbone(backbone(channels))

    sample = build(3, 0, torch.Generator().manual_seed(0))
    weights, kind = sample.state_dict(), backbone
    if isinstance(backbone, nn.Module):
        content, kind = tensors_sha256(weights), type(backbone)
    else:  # its initial weights depend on the seed
        content = str({name: tuple(tensor.shape) for name, tensor in weights.items()})
    digest = json_sha256([repr(sample), content])[:8]
    name = f"custom-{getattr(kind, '__name__', 'backbone').strip('<>')}-{digest}"
    BACKBONES[name] = build
    return name
