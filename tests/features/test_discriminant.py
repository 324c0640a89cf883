"""Linear discriminant analysis."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from cscct.features import lda
from cscct.features.discriminant import SHRINKAGES, GaussianClasses
from feature_classes import TALL, WIDE, classes, statistics


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 1.0])
def test_lda_matches_scikit_learn(shape: tuple[int, int], shrinkage: float) -> None:
    """scikit-learn divides the covariance by n, not by n - classes."""
    features, n = classes(5, shape), 5 * shape[0]
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.2] * 5)
    model.fit(torch.cat(features).double().numpy(), np.repeat(np.arange(5), shape[0]))
    predictor = lda(statistics(features), shrinkage)
    coefficients = torch.from_numpy(model.coef_) * (n - 5) / n
    expected = coefficients - coefficients.mean(dim=0)  # scores up to a constant that all classes share
    weight = predictor.weight.double()
    torch.testing.assert_close(
        weight - weight.mean(dim=0), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())
    )
    queries = torch.cat(classes(5, shape, seed=1))
    assert predictor.predict(queries).tolist() == model.predict(queries.double().numpy()).tolist()


@pytest.mark.parametrize("shape", [(5, 12), (9, 10)])
def test_leave_one_out_densities_of_lda_are_exact(shape: tuple[int, int]) -> None:
    """Compared with a fit without each sample, with the multiple of the identity from all samples."""
    features, shrinkage = classes(3, shape), 0.2
    model = GaussianClasses(statistics(features))
    model.shrinkage = shrinkage
    densities = model.left_out_scores(model.selected)
    freedom, d = 3 * shape[0] - 3, shape[1]
    for position in range(3 * shape[0]):
        label, index = divmod(position, shape[0])
        rest = [rows.double() for rows in features]
        rest[label] = torch.cat([rest[label][:index], rest[label][index + 1 :]])
        scatter = sum((rows - rows.mean(dim=0)).T @ (rows - rows.mean(dim=0)) for rows in rest)
        covariance = (1 - shrinkage) * scatter / freedom + shrinkage * model.scale * torch.eye(d)
        offsets = features[label][index].double() - torch.stack([rows.mean(dim=0) for rows in rest])
        expected = -0.5 * (offsets * torch.linalg.solve(covariance, offsets.T).T).sum(dim=1)
        torch.testing.assert_close(densities[position], expected, rtol=1e-7, atol=1e-7)


def test_lda_selects_more_shrinkage_for_fewer_samples() -> None:
    """With correlated features, so that the covariance matters."""
    mixing = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 30))).float()
    selected = []
    for count in (4, 30):
        features = [[rows @ mixing for rows in classes(6, (count, 30), seed)] for seed in range(5)]
        models = [GaussianClasses(statistics(rows)) for rows in features]
        losses = [sum(model.calibration(shrinkage).loss for model in models) for shrinkage in SHRINKAGES]
        selected.append(SHRINKAGES[int(np.argmin(losses))])
    assert selected[1] < 0.5 < selected[0]


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_lda_if_the_first_algorithm_does_not_converge(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a network with dead channels."""
    expected = lda(statistics(classes(5, shape)), 0.1)

    def fail(_: torch.Tensor) -> None:
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    torch.testing.assert_close(lda(statistics(classes(5, shape)), 0.1).weight, expected.weight, rtol=1e-4, atol=1e-4)
