"""Backbone and head in one: images in, `Output` out."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..structs import Output
from .heads import Head
from .registries import BACKBONES, HEADS
from .resnet import pool


class Network(nn.Module):
    """`relu_head`: the head reads the feature with its last ReLU, as the original iCaRL does. Herding, class means
    and the feature losses read the signed one in any case."""

    def __init__(self, backbone: nn.Module, head: Head, *, relu_head: bool = False):
        super().__init__()
        self.backbone, self.head, self.relu_head = backbone, head, relu_head

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
) -> Network:
    body = BACKBONES[backbone](channels, depth, generator)
    features: int = body.features  # type: ignore[assignment]
    return Network(body, HEADS[head](features, rows_per_class), relu_head=relu_head)
