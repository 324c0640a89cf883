"""Ridge regression."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from .linear import LinearPredictor, calibrated
from .statistics import ClassStatistics, counts_and_means, left_out_images, spectrum

PENALTIES = [2.0**k for k in range(-12, 13)]  # times the mean eigenvalue


def ridge(classes: Sequence[ClassStatistics], penalty: float | None = None) -> LinearPredictor:
    """Ridge regression onto the classes' indicators, with an intercept that is not penalised.

    penalty: by default the one with the least squared error on images that are left out one at a time; where no images
    are kept, that of generalised cross-validation.
    """
    counts, means = counts_and_means(classes)
    n = float(counts.sum())
    centre, share = (counts @ means) / n, counts / n
    products = (means - centre).T * counts  # of centred features and indicators, (d, classes)
    values, basis = spectrum([one.centred for one in classes] + [counts.sqrt()[:, None] * (means - centre)])
    rotated = basis.T @ products
    images, labels = left_out_images(classes)
    projected, truth = (images - centre) @ basis, F.one_hot(labels, len(classes)).double()

    def left_out(penalty: float) -> Tensor:
        """Indicators predicted for each image without it."""
        fitted = projected @ (rotated / (values + penalty)[:, None]) + share
        leverage = (projected**2 / (values + penalty)).sum(dim=1) + 1 / n
        return truth - (truth - fitted) / (1 - leverage).clamp(min=1e-9)[:, None]

    def generalised(penalty: float) -> float:
        shrunk = rotated / (values + penalty)[:, None]
        error = n * (share * (1 - share)).sum() - 2 * (shrunk * rotated).sum() + (values[:, None] * shrunk**2).sum()
        freedom = 1 + (values / (values + penalty)).sum()
        return float(error / (1 - freedom / n).clamp(min=1e-6) ** 2)

    if penalty is None:
        scale = float(values.mean()) if len(values) else 1.0
        kept = any(one.samples is not None for one in classes)
        error = (lambda one: float(((truth - left_out(one)) ** 2).sum())) if len(labels) else generalised
        penalty = scale if kept and not len(labels) else min((scale * one for one in PENALTIES), key=error)
    weight = (basis @ (rotated / (values + penalty)[:, None])).T
    temperature = calibrated(left_out(penalty), labels).temperature or 0.06
    return LinearPredictor(weight.float(), (share - weight @ centre).float(), temperature)
