"""Two-dimensional map of the feature space."""

import numpy as np
import pytest

from cscct import IncrementalClassifier
from cscct.classifier.serve.feature_map import POINTS, feature_map
from small_models import blobs


def test_class_means_are_the_means_of_the_points() -> None:
    x, y = blobs(5, 30, width=40)
    projection = feature_map(7, IncrementalClassifier(None).learn(x, y))
    assert (projection.version, [entry.name for entry in projection.classes]) == (7, ["0", "1", "2", "3", "4"])
    assert 0.3 < projection.share <= 1
    for entry in projection.classes:
        np.testing.assert_allclose(np.mean(entry.points, axis=0), [entry.x, entry.y], atol=1e-6)


@pytest.mark.parametrize(("classes", "each"), [(1, 1), (1, 5), (2, 1), (2, 9), (3, 1)])
def test_few_classes_and_images(classes: int, each: int) -> None:
    x, y = blobs(classes, each)
    projection = feature_map(1, IncrementalClassifier(None, method="ncm").learn(x, y))
    assert [len(entry.points) for entry in projection.classes] == [each] * classes
    assert np.isfinite([[entry.x, entry.y] for entry in projection.classes]).all()


def test_points_are_limited_and_absent_for_compressed_features() -> None:
    x, y = blobs(3, 200, width=300)
    projection = feature_map(1, IncrementalClassifier(None, method="ncm").learn(x, y))
    assert all(POINTS / 2 <= len(entry.points) <= POINTS for entry in projection.classes)
    x, y = blobs(3, 40)  # more images than dimensions
    projection = feature_map(1, IncrementalClassifier(None, method="ncm").learn(x, y))
    assert len({(entry.x, entry.y) for entry in projection.classes}) == 3
