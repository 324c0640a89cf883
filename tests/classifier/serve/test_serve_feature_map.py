"""The feature space in two dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from cscct import IncrementalClassifier
from cscct.classifier.serve.feature_map import POINTS, feature_map
from small_models import blobs


def test_means_lie_in_the_midst_of_their_photographs() -> None:
    x, y = blobs(5, 30, width=40)
    found = feature_map(7, IncrementalClassifier(None).learn(x, y))
    assert (found.version, [one.name for one in found.classes]) == (7, ["0", "1", "2", "3", "4"])
    assert 0.3 < found.share <= 1
    for one in found.classes:
        np.testing.assert_allclose(np.mean(one.points, axis=0), [one.x, one.y], atol=1e-6)


@pytest.mark.parametrize(("classes", "each"), [(1, 1), (1, 5), (2, 1), (2, 9), (3, 1)])
def test_few_classes_and_images_have_a_map_too(classes: int, each: int) -> None:
    x, y = blobs(classes, each)
    found = feature_map(1, IncrementalClassifier(None, predictor="ncm").learn(x, y))
    assert [len(one.points) for one in found.classes] == [each] * classes
    assert np.isfinite([[one.x, one.y] for one in found.classes]).all()


def test_points_are_few_and_none_once_features_are_compressed() -> None:
    x, y = blobs(3, 200, width=300)
    found = feature_map(1, IncrementalClassifier(None, predictor="ncm").learn(x, y))
    assert all(POINTS / 2 <= len(one.points) <= POINTS for one in found.classes)
    x, y = blobs(3, 40)  # more images than dimensions
    found = feature_map(1, IncrementalClassifier(None, predictor="ncm").learn(x, y))
    assert len({(one.x, one.y) for one in found.classes}) == 3
