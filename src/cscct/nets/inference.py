"""A network made for forward passes alone: the same function, less work."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .network import Network
from .resnet import Block

Module = TypeVar("Module", bound=nn.Module)


def for_inference(network: Network, *, fold: bool = True, compiled: bool = False) -> Network:
    """A frozen copy. fold: batch norm, which no longer changes, becomes part of the convolution before it; results
    differ by rounding. compiled: by torch.compile, when first used; only the backbone, which is the same in all tasks.
    """
    copy = network.frozen_copy()
    if fold:
        copy = fold_norms(copy)
    if compiled:
        copy.backbone.compile()
    return copy


def fold_norms(network: Module) -> Module:
    """Fold batch norms, in place, where it is known which norm follows which convolution; others stay as they are."""
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
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
