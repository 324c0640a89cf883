"""Initial weights of new classes, computed from their features."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def imprint_mean(features: Sequence[Tensor], old_weight: Tensor, proxies_per_class: int = 1, seed: int = 0) -> Tensor:
    """Return one weight vector per class: its mean unit feature, scaled to the mean norm of the old weights.

    Args:
        features: Features of each new class, shape (n_i, d).
        old_weight: Weights of the old classes, shape (old classes, d).
        proxies_per_class: Must be 1.
        seed: Unused.

    Returns:
        Weights, shape (new classes, d).

    Raises:
        ValueError: If `proxies_per_class` is not 1.
    """
    if proxies_per_class != 1:
        raise ValueError(f"imprinting with class means gives one weight vector per class, not {proxies_per_class}.")
    means = torch.stack([F.normalize(rows, dim=1).mean(dim=0) for rows in features])
    return F.normalize(means, dim=1) * old_weight.norm(dim=1).mean()


def imprint_kmeans(features: Sequence[Tensor], old_weight: Tensor, proxies_per_class: int, seed: int) -> Tensor:
    """Return several weight vectors per class: the k-means centres of its unit features, times the mean old norm.

    The centres are not normalised. A class with fewer samples than proxies repeats its centres.

    Args:
        features: Features of each new class, shape (n_i, d).
        old_weight: Weights of the old classes, shape (old classes * proxies_per_class, d).
        proxies_per_class: Number of clusters.
        seed: Seed of k-means.

    Returns:
        Weights, shape (new classes * proxies_per_class, d), class by class.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    weights = []
    for rows in features:
        points = F.normalize(rows, dim=1).cpu().double().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters
            model = KMeans(min(proxies_per_class, len(points)), n_init=10, random_state=seed).fit(points)
        centres = torch.from_numpy(model.cluster_centers_)
        weights.append(centres[torch.arange(proxies_per_class) % len(centres)])
    return torch.cat(weights).to(old_weight) * old_weight.norm(dim=1).mean()
