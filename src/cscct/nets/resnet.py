"""The four backbones of the published results, and their small relatives.

All return one map per stage, none with a last ReLU: pooled features are signed, which cosine heads, herding, CSC
and CT rely on. Convolutions have no bias; Kaiming-normal, fan out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from .registries import SIX_N_PLUS_2
from .staged import StagedBackbone


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two 3×3 convolutions around a shortcut; `last_relu` says whether a ReLU follows the addition."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, last_relu: bool, projection: bool):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.last_relu = last_relu
        self.shortcut: nn.Module
        if stride == 1 and inputs == outputs:
            self.shortcut = nn.Identity()
        elif projection:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        else:
            self.shortcut = StridedPad(stride, outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True) if self.last_relu else y


class StridedPad(nn.Module):
    """A shortcut without parameters: every second pixel, and zero channels after the existing ones."""

    def __init__(self, stride: int, extra: int):
        super().__init__()
        self.stride, self.extra = stride, extra

    def forward(self, x: Tensor) -> Tensor:
        if channels_last(x):
            kept = x.permute(0, 2, 3, 1)[:, :: self.stride, :: self.stride]
            return F.pad(kept, (0, self.extra)).permute(0, 3, 1, 2)
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class ResNet(StagedBackbone):
    """A stem and stages of blocks. `blocks[i]` is a list of `last_relu` flags: one block for each."""

    def __init__(
        self,
        stem: nn.Module,
        widths: Sequence[int],
        blocks: Sequence[Sequence[bool]],
        strides: Sequence[int],
        *,
        projection: bool,
    ):
        stages, inputs = [], widths[0]
        for width, flags, stride in zip(widths, blocks, strides, strict=True):
            stage = []
            for i, last_relu in enumerate(flags):
                step = stride if i == 0 else 1
                stage.append(Block(inputs, width, step, last_relu=last_relu, projection=projection))
                inputs = width
            stages.append(nn.Sequential(*stage))
        super().__init__(stem, stages, features=inputs)

    def initialise(self, generator: Generator, *, zero_last_norm: bool) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        if zero_last_norm:
            for module in self.modules():
                if isinstance(module, Block):
                    nn.init.zeros_(module.bn2.weight)


def small_stem(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(conv(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def blocks_per_stage(depth: int) -> int:
    if not SIX_N_PLUS_2.allowed(depth):
        raise ValueError(f"depth must be {SIX_N_PLUS_2.text}, not {depth}.")
    return (depth - 2) // 6


def lucir_resnet(channels: int, depth: int, generator: Generator) -> ResNet:
    """LUCIR's network for small images: 1×1-convolution shortcuts, a ReLU after every block but the last."""
    n = blocks_per_stage(depth)
    flags = [[True] * n, [True] * n, [True] * (n - 1) + [False]]
    net = ResNet(small_stem(channels, 16), (16, 32, 64), flags, (1, 2, 2), projection=True)
    net.initialise(generator, zero_last_norm=False)
    return net


def podnet_resnet(channels: int, depth: int, generator: Generator) -> ResNet:
    """PODNet's: shortcuts without parameters, no ReLU after any addition, the last block a stage of its own.

    The second norm of each block starts at zero, so that the network starts as its stem, strided and padded.
    """
    n = blocks_per_stage(depth)
    stages = [(16, n, 1), (32, n, 2), (64, n - 1, 2), (64, 1, 1)]  # width, blocks, stride
    if n == 1:  # nothing is left for the third stage
        stages = [(16, 1, 1), (32, 1, 2), (64, 1, 2)]
    widths, counts, strides = zip(*stages, strict=True)
    flags = [[False] * count for count in counts]
    net = ResNet(small_stem(channels, 16), widths, flags, strides, projection=False)
    net.initialise(generator, zero_last_norm=True)
    return net


def lucir_resnet18(channels: int, depth: int, generator: Generator) -> ResNet:
    """The usual ResNet-18 for large images, without the very last ReLU."""
    stem = nn.Sequential(
        nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    )
    flags = [[True, True], [True, True], [True, True], [True, False]]
    net = ResNet(stem, (64, 128, 256, 512), flags, (1, 2, 2, 2), projection=True)
    net.initialise(generator, zero_last_norm=False)
    return net


def podnet_resnet18(channels: int, depth: int, generator: Generator) -> ResNet:
    """PODNet's ResNet-18: 3×3 stem without stride, no ReLU after the second block of any stage."""
    stem = nn.Sequential(*small_stem(channels, 64), nn.MaxPool2d(3, 2, padding=1))
    net = ResNet(stem, (64, 128, 256, 512), [[True, False]] * 4, (1, 2, 2, 2), projection=True)
    net.initialise(generator, zero_last_norm=True)
    return net


def pool(maps: Tensor) -> Tensor:
    return maps.permute(0, 2, 3, 1).mean(dim=(1, 2)) if channels_last(maps) else maps.mean(dim=(2, 3))


def channels_last(x: Tensor) -> bool:
    """How maps lie in memory where the package runs networks. What is then computed on the view (k, h, w, c) gives
    back a gradient that lies as they do; else torch makes one with the channels first, and every layer rearranges it.
    """
    return x.is_contiguous(memory_format=torch.channels_last)
