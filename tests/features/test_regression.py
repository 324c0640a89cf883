"""Ridge regression."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from cscct.features import ridge
from cscct.features.regression import PENALTIES
from feature_classes import TALL, WIDE, assert_same, classes, statistics


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("penalty", [0.1, 30.0])
def test_ridge_matches_scikit_learn(shape: tuple[int, int], penalty: float) -> None:
    features = [*classes(4, shape)[:3], classes(1, shape)[0][:5]]  # classes of unequal size
    truth = np.repeat(np.eye(4), [len(rows) for rows in features], axis=0)
    model = Ridge(alpha=penalty).fit(torch.cat(features).double().numpy(), truth)
    predictor = ridge(statistics(features), penalty)
    torch.testing.assert_close(predictor.weight.double(), torch.from_numpy(model.coef_), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(predictor.bias.double(), torch.from_numpy(model.intercept_), rtol=1e-4, atol=1e-5)


def test_ridge_selects_the_penalty_with_the_smallest_leave_one_out_error() -> None:
    """Compared with a fit without each sample, for every candidate."""
    features = classes(3, (6, 10), spread=0.7)
    rows, truth = torch.cat(features).double().numpy(), np.repeat(np.eye(3), 6, axis=0)
    total = rows - rows.mean(axis=0)
    scale = np.linalg.svd(total, compute_uv=False)[:10] ** 2

    def error(penalty: float) -> float:
        masks = [np.arange(18) != index for index in range(18)]
        models = [Ridge(alpha=penalty).fit(rows[mask], truth[mask]) for mask in masks]
        return sum(
            float(((model.predict(rows[~mask]) - truth[~mask]) ** 2).sum())
            for model, mask in zip(models, masks, strict=True)
        )

    best = min((float(scale.mean()) * factor for factor in PENALTIES), key=error)
    assert_same(ridge(statistics(features)), ridge(statistics(features), best))
