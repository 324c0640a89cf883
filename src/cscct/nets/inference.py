"""A network made for forward passes alone: the same function, less work."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .resnet import Block

M = TypeVar("M", bound=nn.Module)


def for_inference(network: M, *, fold: bool = True, compiled: bool = False) -> M:
    """A frozen copy of a network or of a backbone. fold: batch norm, which no longer changes, becomes part of the
    convolution before it; results differ by rounding. compiled: by torch.compile, when first used; only the backbone,
    which is the same in all tasks.
    """
    frozen = copy.deepcopy(network).eval().requires_grad_(False)
    if fold:
        _fold(frozen)
        frozen = frozen.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if compiled:
        getattr(frozen, "backbone", frozen).compile()
    return frozen


def _fold(network: nn.Module) -> None:
    """Where it is known which norm follows which convolution; other modules stay as they are."""
    for module in network.modules():
        if isinstance(module, Block):
            names = [("conv1", "bn1"), ("conv2", "bn2")]
        elif isinstance(module, nn.Sequential):
            names = list(pairwise(name for name, _ in module.named_children()))
        else:
            continue
        for before, after in names:
            conv, norm = getattr(module, before), getattr(module, after)
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:
                setattr(module, before, fuse_conv_bn_eval(conv, norm))
                setattr(module, after, nn.Identity())
