"""Images that are like nothing that was learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..predictors import ClassStatistics


class NoveltyDetector:
    """An image is unknown if its cosine to every class mean is below what is usual in that class."""

    def __init__(self, classes: Sequence[ClassStatistics]):
        self.means = torch.stack([F.normalize(one.directions, dim=0) for one in classes]).float()
        usual = torch.stack([one.directions.norm() / one.count for one in classes]).float()
        single = torch.tensor([one.count == 1 for one in classes])
        usual[single] = usual[~single].mean() if bool((~single).any()) else 0.8
        self.thresholds = 1 - 2 * (1 - usual)

    def unknown(self, features: Tensor) -> Tensor:
        """(k,) bool. features: (k, d)."""
        cosines = F.normalize(features, dim=1) @ self.means.T
        return (cosines < self.thresholds).all(dim=1)
