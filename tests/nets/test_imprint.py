import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cscct.nets import imprint_kmeans, imprint_mean
from oracles import array, length, tensor, units, vector


def random(*sizes: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(4)
    return [torch.from_numpy(rng.normal(size=(size, 4)) + 1) for size in sizes]


def as_set(rows: np.ndarray) -> list[list[float]]:
    return sorted(np.asarray(rows).round(9).tolist())


def test_vector_of_the_mean() -> None:
    row = imprint_mean([tensor("lucir/imprint_input_features")], tensor("lucir/imprint_old_weight"))
    np.testing.assert_allclose(row[0], array("lucir/imprint"), atol=1e-6)


def test_vector_of_kmeans() -> None:
    features, old, clusters = (
        tensor("podnet_imprint/features"),
        tensor("podnet_imprint/old_proxies"),
        vector("podnet_imprint/k"),
    )
    for seed in range(3):
        rows = imprint_kmeans([features], old, clusters, seed)
        expected = array("podnet_imprint/centres_times_mean_norm")
        np.testing.assert_allclose(as_set(rows.numpy()), as_set(expected), atol=1e-6)


def test_mean_of_several_classes() -> None:
    """One row per class, with the mean norm of the old rows."""
    features, (old,) = random(5, 1, 8), random(7)
    rows = imprint_mean(features, old)
    norm = sum(length(row) for row in old.numpy()) / 7
    for row, points in zip(rows.numpy(), features, strict=True):
        mean = units(points.numpy()).sum(axis=0)
        np.testing.assert_allclose(row, mean / length(mean) * norm, atol=1e-12)
    stretched = [points * torch.arange(1.0, len(points) + 1, dtype=torch.float64)[:, None] for points in features]
    torch.testing.assert_close(imprint_mean(stretched, old), rows)


def test_kmeans_of_several_classes() -> None:
    """The rows of a class are the centres of its two clusters."""
    corners = torch.eye(4, dtype=torch.float64)
    features = [
        torch.cat([corners[[i]] + 0.01 * random(6)[0], corners[[j]] + 0.01 * random(5)[0]]) for i, j in ((0, 1), (2, 3))
    ]
    old = 3 * corners
    rows = imprint_kmeans(features, old, 2, seed=1)
    assert rows.shape == (4, 4)
    for label, points in enumerate(features):
        clumps = [F.normalize(points, dim=1)[:6].mean(dim=0), F.normalize(points, dim=1)[6:].mean(dim=0)]
        np.testing.assert_allclose(as_set(rows[2 * label : 2 * label + 2]), as_set(3 * torch.stack(clumps)), atol=1e-8)
    assert (rows.norm(dim=1) < 3).all()  # centres lie inside the sphere, and are not put back on it
    assert torch.equal(rows, imprint_kmeans(features, old, 2, seed=1))


@pytest.mark.parametrize("points", [1, 2, 3])
def test_fewer_points_than_clusters(points: int, recwarn: pytest.WarningsRecorder) -> None:
    features, (old,) = random(points), random(5)
    rows = imprint_kmeans(features, old, 5, seed=1)
    assert rows.shape == (5, 4)
    directions = F.normalize(rows, dim=1)
    apart = torch.cdist(directions, F.normalize(features[0], dim=1)).amin(dim=0)
    assert (apart < 1e-6).all()  # every point has a row
    assert (torch.cdist(directions, F.normalize(features[0], dim=1)).amin(dim=1) < 1e-6).all()
    assert not recwarn.list


def test_identical_points(recwarn: pytest.WarningsRecorder) -> None:
    features = [random(1)[0].repeat(6, 1)]
    rows = imprint_kmeans(features, torch.eye(4), 3, seed=1)
    torch.testing.assert_close(rows.double(), F.normalize(features[0][:3], dim=1), atol=1e-6, rtol=0)
    assert not recwarn.list
