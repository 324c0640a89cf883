"""RanPAC and FeCAM, compared with slow versions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracles
from cscct.methods.fecam import FeCAM
from cscct.methods.ranpac import RanPAC
from feature_classes import classes, statistics


def test_ranpac_selects_the_penalty_with_the_smallest_leave_one_out_error() -> None:
    """Compared with a fit without each sample, for every candidate."""
    features = classes(3, (6, 5))
    fitted = RanPAC(dimension=12).fit(statistics(features, keep_samples=True), seed=3)
    projection, rows = fitted.projection.double().numpy(), [part.double().numpy() for part in features]
    hidden = np.maximum(0, np.concatenate(rows) @ projection)
    values = np.linalg.eigvalsh(hidden.T @ hidden)
    candidates = [10.0**k * values[values > 1e-12 * values.max()].mean() for k in range(-8, 9)]

    def left_out_error(penalty: float) -> float:
        total = 0.0
        for label, part in enumerate(rows):
            for index in range(len(part)):
                rest = [np.delete(part, index, axis=0) if other == label else rows[other] for other in range(3)]
                scores = np.maximum(0, part[index] @ projection) @ oracles.ranpac(rest, projection, penalty)
                total += float(((scores - np.eye(3)[label]) ** 2).sum())
        return total

    expected = oracles.ranpac(rows, projection, min(candidates, key=left_out_error))
    np.testing.assert_allclose(fitted.weight.numpy(), expected, rtol=1e-4, atol=1e-6)
    queries = torch.cat(classes(3, (6, 5), seed=1))
    np.testing.assert_allclose(
        fitted.scores(queries).numpy(), np.maximum(0, queries.double().numpy() @ projection) @ expected, atol=1e-4
    )


def test_the_projection_of_ranpac_depends_on_the_seed_only() -> None:
    one, other = (statistics(classes(count, (6, 5)), keep_samples=True) for count in (2, 3))
    predictor = RanPAC(dimension=12)
    assert torch.equal(predictor.fit(one, seed=3).projection, predictor.fit(other, seed=3).projection)
    assert not torch.equal(predictor.fit(one, seed=3).projection, predictor.fit(one, seed=4).projection)


@pytest.mark.parametrize("shape", [(12, 40), (60, 8), (2, 6)])
@pytest.mark.parametrize("options", [{}, {"power": 1.0, "diagonal": 2.0, "off_diagonal": 0.5, "passes": 1}])
def test_fecam_has_the_distances_of_full_covariance_matrices(shape: tuple[int, int], options: dict[str, float]) -> None:
    features = [part + 0.5 for part in classes(4, shape)]
    queries = torch.cat(classes(3, shape, seed=1))
    fitted = FeCAM(**options).fit(statistics(features, keep_samples=True))  # type: ignore[arg-type]
    expected = oracles.fecam([part.double().numpy() for part in features], queries.double().numpy(), **options)
    np.testing.assert_allclose(-fitted.scores(queries).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert fitted.basis.shape[1] <= min(shape[0] + 1, shape[1])
