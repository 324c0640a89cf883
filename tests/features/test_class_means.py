"""Class means and the nearest-class-mean predictor."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oracles
from cscct.features import ClassStatistics, class_mean, ncm, nearest_mean
from oracles import array, tensor, vector


def reference_means() -> torch.Tensor:
    plain, flipped = vector("nme/exemplar_features"), vector("nme/flipped_features")
    views = [
        (torch.tensor(plain[c], dtype=torch.float64), torch.tensor(flipped[c], dtype=torch.float64))
        for c in sorted(plain)
    ]
    return torch.stack([class_mean(features, second_view) for features, second_view in views])


def test_vectors_of_means() -> None:
    means, queries = reference_means(), tensor("nme/test_features")
    torch.testing.assert_close(means, tensor("nme/class_means"), atol=1e-6, rtol=0)
    predictor = nearest_mean(means)
    assert predictor.predict(queries).tolist() == vector("nme/predictions")
    assert predictor.predict(7 * queries).tolist() == vector("nme/predictions")
    squared_distances = 2 - 2 * predictor.scores(queries)
    torch.testing.assert_close(squared_distances, tensor("nme/sqdist_normalised"), atol=1e-6, rtol=0)
    assert array("nme/sqdist_normalised").argmin(axis=1).tolist() == vector("nme/predictions")


@pytest.mark.parametrize(("n", "second"), [(1, False), (1, True), (6, False), (6, True)])
def test_class_mean_matches_reference(n: int, second: bool) -> None:
    features, second_view = np.random.default_rng(n).normal(size=(2, n, 5))
    mean = class_mean(torch.from_numpy(features), torch.from_numpy(second_view) if second else None)
    np.testing.assert_allclose(mean, oracles.class_mean(features, second_view if second else None), atol=1e-12)
    assert mean.norm().item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("k", "classes"), [(1, 1), (5, 3), (60, 40)])
def test_nearest_mean_matches_reference(k: int, classes: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng([k, classes])
    features, means = rng.normal(size=(k, 5)), oracles.units(rng.normal(size=(classes, 5)))
    expected = oracles.squared_distances(features, means).argmin(axis=1)
    predictor = nearest_mean(torch.from_numpy(means).to(dtype))
    queries = torch.from_numpy(features).to(dtype)
    assert predictor.predict(queries).tolist() == expected.tolist()
    assert predictor.probabilities(queries).argmax(dim=1).tolist() == expected.tolist()


def test_statistics_and_means_give_the_same_predictor() -> None:
    features = [torch.from_numpy(np.random.default_rng(label).normal(size=(6, 8)) + 1).float() for label in range(3)]
    fitted = ncm([ClassStatistics.of(rows) for rows in features])
    predictor = nearest_mean(torch.stack([class_mean(rows) for rows in features]), fitted.temperature)
    torch.testing.assert_close(predictor.weight, fitted.weight)
    queries = torch.cat(features)
    torch.testing.assert_close(predictor.probabilities(queries), fitted.probabilities(queries))
    assert predictor.predict(queries).tolist() == fitted.predict(queries).tolist()
    torch.testing.assert_close(fitted.scores(queries), F.normalize(queries, dim=1) @ fitted.weight.T)
