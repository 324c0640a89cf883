"""Backbones that consist of a stem and a sequence of stages."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class StagedBackbone(nn.Module):
    """Backbone that returns the map of each stage.

    A staged backbone can be split into frozen and trained stages (`network.train_from`).

    Args:
        stem: Module applied to the images.
        stages: Modules applied one after another to the output of the stem.
        features: Channels of the last map, which is the dimension of the features.
    """

    def __init__(self, stem: nn.Module, stages: Iterable[nn.Module], features: int):
        super().__init__()
        self.stem, self.stages, self.features = stem, nn.ModuleList(stages), features

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the map of each stage.

        Args:
            images: Normalised images, shape (k, c, h, w).

        Returns:
            One map per stage, shape (k, c_i, h_i, w_i).
        """
        return stage_maps(self.stages, self.stem(images))


def stage_maps(stages: Iterable[nn.Module], x: Tensor) -> tuple[Tensor, ...]:
    """Apply stages one after another and return the output of each.

    Args:
        stages: Modules.
        x: Input of the first stage.
    """
    maps = []
    for stage in stages:
        x = stage(x)
        maps.append(x)
    return tuple(maps)


class TrainedStages(nn.Module):
    """Remaining stages of a backbone, used as a backbone on the output of the frozen stages.

    Args:
        stages: Stages by their index in the backbone.
        features: Channels of the last map.
    """

    def __init__(self, stages: dict[str, nn.Module], features: int):
        super().__init__()
        self.stages, self.features = nn.ModuleDict(stages), features

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the map of each stage, shape (k, c_i, h_i, w_i).

        Args:
            x: Output of the frozen stages, shape (k, c, h, w).
        """
        return stage_maps(self.stages.values(), x)
