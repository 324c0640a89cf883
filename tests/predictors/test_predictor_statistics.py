"""What is kept of the features of a class."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cscct.predictors import ClassStatistics
from feature_classes import classes


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_compressed_statistics_have_the_same_moments(offset: float) -> None:
    """Also of features that vary little around a large mean."""
    features = classes(1, (300, 7))[0] + offset
    one = ClassStatistics.of(features[:5]).extended(features[5:100]).extended(features[100:])
    assert one.samples is None
    assert one.count == 300
    assert one.rows.shape == (7, 7)
    wide = features.double()
    torch.testing.assert_close(one.mean, wide.mean(dim=0), rtol=1e-12, atol=0)
    scatter = one.centred.T @ one.centred
    torch.testing.assert_close(scatter, 299 * torch.cov(wide.T), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(one.directions, F.normalize(wide, dim=1).sum(dim=0))
