"""Ridge regression."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from cscct.predictors import ridge
from cscct.predictors.regression import PENALTIES
from feature_classes import TALL, WIDE, assert_same, classes, statistics


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("penalty", [0.1, 30.0])
def test_ridge_is_that_of_scikit_learn(shape: tuple[int, int], penalty: float) -> None:
    features = [*classes(4, shape)[:3], classes(1, shape)[0][:5]]  # of unequal size
    truth = np.repeat(np.eye(4), [len(one) for one in features], axis=0)
    model = Ridge(alpha=penalty).fit(torch.cat(features).double().numpy(), truth)
    found = ridge(statistics(features), penalty)
    torch.testing.assert_close(found.weight.double(), torch.from_numpy(model.coef_), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.bias.double(), torch.from_numpy(model.intercept_), rtol=1e-4, atol=1e-5)


def test_ridge_chooses_its_penalty_by_leaving_images_out() -> None:
    """Against fitting anew without each image, for every penalty that is tried."""
    features = classes(3, (6, 10), spread=0.7)
    rows, truth = torch.cat(features).double().numpy(), np.repeat(np.eye(3), 6, axis=0)
    total = rows - rows.mean(axis=0)
    scale = np.linalg.svd(total, compute_uv=False)[:10] ** 2

    def error(penalty: float) -> float:
        kept = [np.arange(18) != left for left in range(18)]
        models = [Ridge(alpha=penalty).fit(rows[one], truth[one]) for one in kept]
        return sum(
            float(((m.predict(rows[~one]) - truth[~one]) ** 2).sum()) for m, one in zip(models, kept, strict=True)
        )

    best = min((float(scale.mean()) * one for one in PENALTIES), key=error)
    assert_same(ridge(statistics(features)), ridge(statistics(features), best))
