"""The feature space in two dimensions."""

from __future__ import annotations

import numpy as np

from ...predictors import ClassStatistics
from ..estimator import IncrementalClassifier
from .schemas import FeatureMap, MapClass

POINTS = 60  # at most, of a class


def feature_map(version: int, model: IncrementalClassifier) -> FeatureMap:
    """Class means and single photographs (unit features), projected onto the two principal components of the means.

    With fewer than three classes, the components of all photographs.
    """
    labels, classes = list(model.statistics_), list(model.statistics_.values())
    samples = [_unit(_samples(one)) for one in classes]
    means = np.stack([(one.directions / one.count).numpy() for one in classes])
    spread = means if len(labels) > 2 else np.concatenate([means, *samples])
    centre = spread.mean(axis=0)
    axes, share = _principal(spread - centre)
    placed = (means - centre) @ axes.T
    return FeatureMap(
        version=version,
        share=share,
        classes=[
            MapClass(
                name=str(label),
                x=float(place[0]),
                y=float(place[1]),
                points=[(float(x), float(y)) for x, y in (rows - centre) @ axes.T],
                exemplars=len(model.exemplars_.get(label, ())),
            )
            for label, place, rows in zip(labels, placed, samples, strict=True)
        ],
    )


def _samples(statistics: ClassStatistics) -> np.ndarray:
    """(k, d): some of the features of a class, evenly chosen; none once only their sums are kept."""
    rows = statistics.rows[:0] if statistics.samples is None else statistics.samples
    return rows[:: max(1, -(-len(rows) // POINTS))].double().numpy()


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _principal(centred: np.ndarray) -> tuple[np.ndarray, float]:
    """Two orthogonal directions (2, d) of largest variance, and their share of it. Signs are fixed, so that the picture
    does not turn over from one version to the next."""
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((2, centred.shape[1]))
    found[: len(axes[:2])] = axes[:2]
    signs = np.sign(found[[0, 1], np.abs(found).argmax(axis=1)])
    share = float((values[:2] ** 2).sum() / max(float((values**2).sum()), 1e-12))
    return found * np.where(signs == 0, 1, signs)[:, None], min(1.0, share)
