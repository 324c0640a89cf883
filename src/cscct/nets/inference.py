"""Inference form of a network: the same function with less work."""

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
    """Return a frozen copy of a network for inference.

    Args:
        network: Network. It is not changed.
        fold: Whether batch norms are folded into the preceding convolutions. Outputs change by rounding errors.
        compiled: Whether the backbone is compiled with `torch.compile` at its first use.
    """
    copy = network.frozen_copy()
    if fold:
        copy = fold_norms(copy)
    if compiled:
        copy.backbone.compile()  # not the head, which changes with every task
    return copy


def fold_norms(network: Module) -> Module:
    """Fold batch norms into the preceding convolutions, in place.

    Only ResNet blocks and `nn.Sequential` are folded, where the order of the layers is known.

    Args:
        network: Module in evaluation mode.

    Returns:
        The module, in channels-last memory format.
    """
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
