"""Modules of users as backbones."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import torch
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
        right = bool(maps) and all(isinstance(one, Tensor) and one.ndim == 4 for one in maps)
        if not right or maps[-1].shape[1] != self.features:
            shapes = ", ".join(str(tuple(getattr(one, "shape", ()))) for one in maps)
            raise UserError(
                f"The backbone {type(self.module).__name__} must give features (k, {self.features}) or maps "
                f"(k, c, h, w) of which the last has {self.features} channels; it gives {shapes or 'nothing'}."
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
    """Makes a module, or a function of the images' channels that builds one, known; returns the name for
    `network.backbone`. A module's own weights are where training starts.

    The name ends with a hash of the module's structure (and of its weights, if it is given as a module), so that runs
    with different backbones are different runs.
    """

    def build(channels: int, depth: int, generator: Generator) -> nn.Module:
        if isinstance(backbone, nn.Module):
            return CustomBackbone(copy.deepcopy(backbone))
        with torch.random.fork_rng(devices=[]):  # modules draw their first weights from torch's own generator
            torch.manual_seed(generator.initial_seed())
            return CustomBackbone(backbone(channels))

    sample = build(3, 0, torch.Generator().manual_seed(0))
    digest = hashlib.sha256(repr(sample).encode())
    for name, tensor in sample.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        if isinstance(backbone, nn.Module):
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    kind = type(backbone) if isinstance(backbone, nn.Module) else backbone
    name = f"custom-{getattr(kind, '__name__', 'backbone').strip('<>')}-{digest.hexdigest()[:8]}"
    BACKBONES[name] = build
    return name
