"""Nearest class mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .linear import LinearPredictor, calibrated
from .statistics import ClassStatistics, left_out_images


def ncm(classes: Sequence[ClassStatistics]) -> LinearPredictor:
    """Nearest class mean, by cosine: the mean of the unit features of a class, normalised."""
    totals = torch.stack([one.directions for one in classes])
    means = F.normalize(totals, dim=1)
    images, labels = left_out_images(classes)
    images = F.normalize(images, dim=1)
    scores = images @ means.T
    own = (images * F.normalize(totals[labels] - images, dim=1)).sum(dim=1)  # without the image itself
    scores[torch.arange(len(labels)), labels] = own
    temperature = calibrated(scores, labels).temperature or 0.05
    return LinearPredictor(means.float(), torch.zeros(len(classes)), temperature, unit=True)
