"""ResNets of LUCIR and PODNet, for small and large images.

All return one map per stage. The last map has no ReLU: pooled features are signed, which cosine heads, herding, CSC and
CT rely on. Convolutions have no bias and Kaiming-normal initial weights (fan out).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from .registries import SIX_N_PLUS_2
from .staged import StagedBackbone


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the size of the map at stride 1.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        size: Kernel size.
        stride: Stride.
    """
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Residual block: two 3×3 convolutions and a shortcut.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        stride: Stride of the first convolution.
        last_relu: Whether a ReLU follows the addition.
        projection: Whether the shortcut is a 1×1 convolution where shapes differ; otherwise it has no parameters.
    """

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
        """Return the map of the block, shape (k, outputs, h / stride, w / stride)."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True) if self.last_relu else y


class StridedPad(nn.Module):
    """Shortcut without parameters: subsampling, and zero channels after the existing ones.

    Args:
        stride: Distance of the pixels that are kept.
        extra: Number of zero channels to append.
    """

    def __init__(self, stride: int, extra: int):
        super().__init__()
        self.stride, self.extra = stride, extra

    def forward(self, x: Tensor) -> Tensor:
        """Return the subsampled and padded map, in the memory format of the input."""
        if channels_last(x):
            kept = x.permute(0, 2, 3, 1)[:, :: self.stride, :: self.stride]
            return F.pad(kept, (0, self.extra)).permute(0, 3, 1, 2)
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class ResNet(StagedBackbone):
    """Residual network.

    Args:
        stem: Module applied to the images.
        widths: Channels of each stage.
        blocks: For each stage the `last_relu` flags of its blocks.
        strides: Stride of the first block of each stage.
        projection: Whether shortcuts are 1×1 convolutions where shapes differ.
    """

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
        """Set random initial weights.

        Args:
            generator: Source of the random numbers.
            zero_last_norm: Whether the last batch norm of each block starts at zero, so that blocks start as shortcuts.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        if zero_last_norm:
            for module in self.modules():
                if isinstance(module, Block):
                    nn.init.zeros_(module.bn2.weight)


def small_stem(channels: int, width: int) -> nn.Sequential:
    """Return the stem for small images: a 3×3 convolution, batch norm and ReLU.

    Args:
        channels: Channels of the images.
        width: Output channels.
    """
    return nn.Sequential(conv(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def blocks_per_stage(depth: int) -> int:
    """Return n for a depth of 6n+2.

    Args:
        depth: Depth of the network.

    Raises:
        ValueError: If the depth has another form.
    """
    if not SIX_N_PLUS_2.allowed(depth):
        raise ValueError(f"depth must be {SIX_N_PLUS_2.text}, not {depth}.")
    return (depth - 2) // 6


def lucir_resnet(channels: int, depth: int, generator: Generator) -> ResNet:
    """Build the ResNet of LUCIR for small images: 1×1-convolution shortcuts, a ReLU after every block but the last.

    Args:
        channels: Channels of the images.
        depth: Depth 6n+2.
        generator: Source of the initial weights.

    Returns:
        Backbone with 3 stages and 64 features.
    """
    n = blocks_per_stage(depth)
    flags = [[True] * n, [True] * n, [True] * (n - 1) + [False]]
    net = ResNet(small_stem(channels, 16), (16, 32, 64), flags, (1, 2, 2), projection=True)
    net.initialise(generator, zero_last_norm=False)
    return net


def podnet_resnet(channels: int, depth: int, generator: Generator) -> ResNet:
    """Build the ResNet of PODNet for small images: shortcuts without parameters, no ReLU after any addition.

    The last block is a separate stage. Blocks start as shortcuts.

    Args:
        channels: Channels of the images.
        depth: Depth 6n+2.
        generator: Source of the initial weights.

    Returns:
        Backbone with 4 stages (3 at depth 8) and 64 features.
    """
    n = blocks_per_stage(depth)
    stages = [(16, n, 1), (32, n, 2), (64, n - 1, 2), (64, 1, 1)]  # width, blocks, stride
    if n == 1:  # the third stage would have no blocks
        stages = [(16, 1, 1), (32, 1, 2), (64, 1, 2)]
    widths, counts, strides = zip(*stages, strict=True)
    flags = [[False] * count for count in counts]
    net = ResNet(small_stem(channels, 16), widths, flags, strides, projection=False)
    net.initialise(generator, zero_last_norm=True)
    return net


def lucir_resnet18(channels: int, depth: int, generator: Generator) -> ResNet:
    """Build ResNet-18 for large images, without the last ReLU.

    Args:
        channels: Channels of the images.
        depth: Must be 18; not used.
        generator: Source of the initial weights.

    Returns:
        Backbone with 4 stages and 512 features.
    """
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
    """Build the ResNet-18 of PODNet: 3×3 stem without stride, no ReLU after the second block of any stage.

    Args:
        channels: Channels of the images.
        depth: Must be 18; not used.
        generator: Source of the initial weights.

    Returns:
        Backbone with 4 stages and 512 features.
    """
    stem = nn.Sequential(*small_stem(channels, 64), nn.MaxPool2d(3, 2, padding=1))
    net = ResNet(stem, (64, 128, 256, 512), [[True, False]] * 4, (1, 2, 2, 2), projection=True)
    net.initialise(generator, zero_last_norm=True)
    return net


def pool(maps: Tensor) -> Tensor:
    """Return the mean over the pixels.

    Args:
        maps: Maps, shape (k, c, h, w).

    Returns:
        Features, shape (k, c).
    """
    return maps.permute(0, 2, 3, 1).mean(dim=(1, 2)) if channels_last(maps) else maps.mean(dim=(2, 3))


def channels_last(x: Tensor) -> bool:
    """Return whether a map has the channels-last memory format, which networks use in this package.

    Operations on its view (k, h, w, c) return gradients in the same format. Otherwise torch creates channels-first
    gradients, and every layer converts them.
    """
    return x.is_contiguous(memory_format=torch.channels_last)
