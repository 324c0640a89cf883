"""Backbone and head in one: images in, `Output` out."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..structs import Output
from .heads import Head
from .registries import HEADS
from .resnet import pool
from .weights import build_backbone


class Network(nn.Module):
    """`relu_head`: the head reads the feature with its last ReLU, as the original iCaRL does. Herding, class means
    and the feature losses read the one before it in any case; a backbone that ends with an activation of its own
    (EfficientNet) has no other.

    `frozen_norms`: batch norm uses its running statistics in training too, and keeps them.
    """

    def __init__(self, backbone: nn.Module, head: Head, *, relu_head: bool = False, frozen_norms: bool = False):
        super().__init__()
        self.backbone, self.head, self.relu_head, self.frozen_norms = backbone, head, relu_head, frozen_norms

    def train(self, mode: bool = True) -> Network:
        super().train(mode)
        if self.frozen_norms:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def forward(self, images: Tensor) -> Output:
        maps = self.backbone(images)
        features = pool(maps[-1])
        scores = self.head(pool(F.relu(maps[-1])) if self.relu_head else features)
        return Output(maps, features, scores, self.head.scale)

    def frozen_copy(self) -> Network:
        """The teacher: the same network, in evaluation mode, without gradients."""
        return copy.deepcopy(self).eval().requires_grad_(False)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over all weights, the head's sizes included."""
        self.head.resize({name.removeprefix("head."): t for name, t in tensors.items() if name.startswith("head.")})
        self.load_state_dict(dict(tensors))


def build_network(
    backbone: str,
    depth: int,
    channels: int,
    head: str,
    rows_per_class: int,
    generator: Generator,
    *,
    relu_head: bool = False,
    frozen_norms: bool = False,
    pretrained: bool = True,
) -> Network:
    """A network without classes. pretrained: as `build_backbone` has it."""
    body = build_backbone(backbone, depth, channels, generator, pretrained=pretrained)
    features: int = body.features  # type: ignore[assignment]
    return Network(body, HEADS[head](features, rows_per_class), relu_head=relu_head, frozen_norms=frozen_norms)
