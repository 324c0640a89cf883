"""A backbone whose last stages exist twice: as they were, and fine-tuned. What either knows stays."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from .staged import StagedBackbone
from .trunk import Top, Trunk, join, split


class DualBackbone(nn.Module):
    """Both tops read what the trunk gives; the last map has the channels of both."""

    def __init__(self, trunk: Trunk, original: Top, tuned: Top):
        super().__init__()
        self.trunk, self.original, self.tuned = trunk, original, tuned
        self.features = original.features + tuned.features

    @staticmethod
    def of(backbone: StagedBackbone, stage: int) -> DualBackbone:
        """With the stages from `stage` on twice."""
        trunk, top = split(backbone, stage)
        return DualBackbone(trunk, copy.deepcopy(top), top)

    @property
    def stage(self) -> int:
        """The first that exists twice."""
        return len(self.trunk.stages)

    @property
    def fine_tuned(self) -> StagedBackbone:
        """The backbone with the fine-tuned stages alone."""
        return join(self.trunk, self.tuned)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        x = self.trunk(images)
        *maps, last = self.tuned(x)
        return (*maps, torch.cat([self.original(x)[-1], last], dim=1))
