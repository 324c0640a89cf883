"""Backbones that are a stem and stages, one after another."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class StagedBackbone(nn.Module):
    """Gives the map after each stage. Such a backbone can be divided between two stages (`nets/trunk.py`).

    features: channels of the last map.
    """

    def __init__(self, stem: nn.Module, stages: Iterable[nn.Module], features: int):
        super().__init__()
        self.stem, self.stages, self.features = stem, nn.ModuleList(stages), features

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return maps_of(self.stages, self.stem(images))


def maps_of(stages: Iterable[nn.Module], x: Tensor) -> tuple[Tensor, ...]:
    """The output of each stage, where each takes that of the one before."""
    maps = []
    for stage in stages:
        x = stage(x)
        maps.append(x)
    return tuple(maps)
