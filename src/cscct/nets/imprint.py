"""First guesses for the rows of new classes, from the features the network already gives them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def imprint_mean(features: Sequence[Tensor], old_weight: Tensor, rows_per_class: int = 1, seed: int = 0) -> Tensor:
    """One row a class: the direction of its mean unit feature, as long as the old rows are on average."""
    if rows_per_class != 1:
        raise ValueError(f"the mean of a class gives one row, not {rows_per_class}.")
    means = torch.stack([F.normalize(one, dim=1).mean(dim=0) for one in features])
    return F.normalize(means, dim=1) * old_weight.norm(dim=1).mean()


def imprint_kmeans(features: Sequence[Tensor], old_weight: Tensor, clusters: int, seed: int) -> Tensor:
    """`clusters` rows a class: k-means centres of its unit features, not re-normalised, times the mean old norm.

    A class with fewer images than clusters repeats its centres.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = []
    for one in features:
        points = F.normalize(one, dim=1).cpu().double().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters
            fitted = KMeans(min(clusters, len(points)), n_init=10, random_state=seed).fit(points)
        centres = torch.from_numpy(fitted.cluster_centers_)
        rows.append(centres[torch.arange(clusters) % len(centres)])
    return torch.cat(rows).to(old_weight) * old_weight.norm(dim=1).mean()
