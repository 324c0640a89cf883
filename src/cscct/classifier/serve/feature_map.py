"""Two-dimensional map of the feature space."""

from __future__ import annotations

import numpy as np

from ...features import ClassStatistics
from ..estimator import IncrementalClassifier
from .schemas import FeatureMap, MapClass

POINTS = 60  # maximum per class


def feature_map(version: int, model: IncrementalClassifier) -> FeatureMap:
    """Project class means and individual images (unit features) onto the two principal components of the means.

    With fewer than three classes, the principal components of all images are used.

    Args:
        version: Version number of the model.
        model: A model with at least one class.

    Returns:
        The map.
    """
    labels, classes = list(model.statistics_), list(model.statistics_.values())
    samples = [_unit(_samples(stats)) for stats in classes]
    means = np.stack([(stats.directions / stats.count).numpy() for stats in classes])
    basis = means if len(labels) > 2 else np.concatenate([means, *samples])
    centre = basis.mean(axis=0)
    axes, share = _principal_axes(basis - centre)
    projected = (means - centre) @ axes.T
    return FeatureMap(
        version=version,
        share=share,
        classes=[
            MapClass(
                name=str(label),
                x=float(mean[0]),
                y=float(mean[1]),
                points=[(float(x), float(y)) for x, y in (rows - centre) @ axes.T],
                exemplars=len(model.exemplars_.get(label, ())),
            )
            for label, mean, rows in zip(labels, projected, samples, strict=True)
        ],
    )


def _samples(statistics: ClassStatistics) -> np.ndarray:
    """Return an even subset of the features of a class (k, d); empty if only their sums are stored."""
    rows = statistics.rows[:0] if statistics.samples is None else statistics.samples
    return rows[:: max(1, -(-len(rows) // POINTS))].double().numpy()


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _principal_axes(centred: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the first two principal axes (2, d) and their fraction of the variance.

    The largest component of each axis is positive, so that the map is not mirrored between versions.
    """
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    axes = np.zeros((2, centred.shape[1]))
    axes[: len(vectors[:2])] = vectors[:2]
    signs = np.sign(axes[[0, 1], np.abs(axes).argmax(axis=1)])
    share = float((values[:2] ** 2).sum() / max(float((values**2).sum()), 1e-12))
    return axes * np.where(signs == 0, 1, signs)[:, None], min(1.0, share)
