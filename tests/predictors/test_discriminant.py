"""Linear discriminant analysis."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from cscct.predictors import lda
from cscct.predictors.discriminant import SHRINKAGES, Gaussians
from feature_classes import TALL, WIDE, classes, statistics


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 1.0])
def test_lda_is_that_of_scikit_learn(shape: tuple[int, int], shrinkage: float) -> None:
    """Whose covariance has the divisor n, not n - classes."""
    features, n = classes(5, shape), 5 * shape[0]
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.2] * 5)
    model.fit(torch.cat(features).double().numpy(), np.repeat(np.arange(5), shape[0]))
    found = lda(statistics(features), shrinkage)
    coefficients = torch.from_numpy(model.coef_) * (n - 5) / n
    expected = coefficients - coefficients.mean(dim=0)  # scores up to a constant that all classes share
    weight = found.weight.double()
    torch.testing.assert_close(
        weight - weight.mean(dim=0), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())
    )
    queries = torch.cat(classes(5, shape, seed=1))
    assert found.scores(queries).argmax(dim=1).tolist() == model.predict(queries.double().numpy()).tolist()


@pytest.mark.parametrize("shape", [(5, 12), (9, 10)])
def test_lda_leaves_images_out_exactly(shape: tuple[int, int]) -> None:
    """Against fitting anew without each image, with the multiple of the identity that all images give."""
    features, shrinkage = classes(3, shape), 0.2
    model = Gaussians(statistics(features))
    found = model.left_out(shrinkage).double()
    freedom, d = 3 * shape[0] - 3, shape[1]
    for position in range(3 * shape[0]):
        label, index = divmod(position, shape[0])
        rest = [one.double() for one in features]
        rest[label] = torch.cat([rest[label][:index], rest[label][index + 1 :]])
        scatter = sum((one - one.mean(dim=0)).T @ (one - one.mean(dim=0)) for one in rest)
        covariance = (1 - shrinkage) * scatter / freedom + shrinkage * model.scale * torch.eye(d)
        offsets = features[label][index].double() - torch.stack([one.mean(dim=0) for one in rest])
        expected = -0.5 * (offsets * torch.linalg.solve(covariance, offsets.T).T).sum(dim=1)
        torch.testing.assert_close(found[position], expected, rtol=1e-7, atol=1e-7)


def test_lda_chooses_more_shrinkage_where_images_are_few() -> None:
    """Of correlated features, where the covariance is worth knowing."""
    mixing = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 30))).float()
    chosen = []
    for count in (4, 30):
        found = [Gaussians(statistics([one @ mixing for one in classes(6, (count, 30), seed)])) for seed in range(5)]
        losses = [sum(model.measured(one).loss for model in found) for one in SHRINKAGES]
        chosen.append(SHRINKAGES[int(np.argmin(losses))])
    assert chosen[1] < 0.5 < chosen[0]
