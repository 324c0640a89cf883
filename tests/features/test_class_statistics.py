"""Statistics of the features of a class."""

import pytest
import torch
import torch.nn.functional as F

from cscct.features import ClassStatistics
from feature_classes import classes


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_compressed_statistics_have_the_same_moments(offset: float) -> None:
    """Also for features with a small variance around a large mean."""
    features = classes(1, (300, 7))[0] + offset
    stats = ClassStatistics.of(features[:5]).extended(features[5:100]).extended(features[100:])
    assert stats.samples is None
    assert stats.count == 300
    assert stats.rows.shape == (7, 7)
    wide = features.double()
    torch.testing.assert_close(stats.mean, wide.mean(dim=0), rtol=1e-12, atol=0)
    scatter = stats.centred.T @ stats.centred
    torch.testing.assert_close(scatter, 299 * torch.cov(wide.T), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(stats.directions, F.normalize(wide, dim=1).sum(dim=0))


@pytest.mark.parametrize("sizes", [(3, 4), (3, 30), (30, 3), (30, 40)])
def test_merged_statistics_are_those_of_all_samples(sizes: tuple[int, int]) -> None:
    rows = classes(1, (sum(sizes), 7))[0]
    first, second = (ClassStatistics.of(part) for part in rows.split(sizes))
    merged, together = first.merged(second), ClassStatistics.of(rows)
    assert (merged.count, merged.rows.shape) == (together.count, together.rows.shape)
    torch.testing.assert_close(merged.mean, together.mean)
    torch.testing.assert_close(merged.directions, together.directions)
    scatters = [stats.centred.T @ stats.centred for stats in (merged, together)]
    torch.testing.assert_close(*scatters, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("count", [3, 30])
def test_statistics_survive_a_round_trip_through_tensors(count: int) -> None:
    stats = ClassStatistics.of(classes(1, (count, 7))[0])
    restored = ClassStatistics.from_tensors(stats.tensors())
    assert restored.count == count
    for name in ("total", "directions", "rows"):
        assert torch.equal(getattr(restored, name), getattr(stats, name))
