import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from torch import Tensor

from cscct import predictors
from cscct.predictors import PREDICTORS, ClassStatistics, LinearPredictor, lda, ridge

NAMES = list(PREDICTORS)
WIDE, TALL = (12, 40), (60, 8)  # images of a class and dimensions: features kept one by one, and compressed


def classes(count: int, shape: tuple[int, int], seed: int = 0, spread: float = 1.0) -> list[Tensor]:
    rng = np.random.default_rng([count, *shape, seed])
    return [torch.from_numpy(rng.normal(size=shape) + spread * rng.normal(size=shape[1])).float() for _ in range(count)]


def statistics(features: list[Tensor]) -> list[ClassStatistics]:
    return [ClassStatistics.of(one) for one in features]


def assert_same(a: LinearPredictor, b: LinearPredictor, rtol: float = 1e-5) -> None:
    for x, y in ((a.weight, b.weight), (a.bias, b.bias)):
        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol * float(y.abs().max()))
    assert a.temperature == pytest.approx(b.temperature, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_order_and_grouping_do_not_matter(name: str, shape: tuple[int, int]) -> None:
    features = classes(5, shape)
    whole = PREDICTORS[name](statistics(features))
    for order in ([4, 2, 0, 1, 3], [1, 0, 2, 4, 3]):
        parts = []
        for label in order:
            first, *rest = features[label].split([1, 2, 0, shape[0] - 3])
            one = ClassStatistics.of(first)
            for more in rest:
                one = one.extended(more)
            parts.append(one)
        found = PREDICTORS[name](parts)
        assert_same(LinearPredictor(whole.weight[order], whole.bias[order], whole.temperature), found)


@pytest.mark.parametrize("name", NAMES)
def test_leaving_out_a_class_is_never_having_had_it(name: str) -> None:
    features = classes(4, WIDE)
    having = statistics(features)
    del having[1]
    never = PREDICTORS[name](statistics([features[0], features[2], features[3]]))
    found = PREDICTORS[name](having)
    assert torch.equal(found.weight, never.weight)
    assert torch.equal(found.bias, never.bias)
    assert found.temperature == never.temperature


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


def test_compressed_classes_predict_as_uncompressed_ones() -> None:
    features = classes(3, (20, 20)) + [one[:9] for one in classes(2, (20, 20), seed=1)]
    plain = statistics(features)
    packed = [
        ClassStatistics(
            one.count, one.total, one.directions, torch.cat([torch.linalg.qr(one.centred, mode="r").R[:-1]])
        )
        for one in plain[:3]
    ] + plain[3:]
    assert [one.samples is None for one in packed] == [True] * 3 + [False] * 2
    for found, expected in ((lda(packed, 0.3), lda(plain, 0.3)), (ridge(packed, 2.0), ridge(plain, 2.0))):
        torch.testing.assert_close(found.weight, expected.weight, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.bias, expected.bias, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("penalty", [0.1, 30.0])
def test_ridge_is_that_of_scikit_learn(shape: tuple[int, int], penalty: float) -> None:
    features = [*classes(4, shape)[:3], classes(1, shape)[0][:5]]  # of unequal size
    truth = np.repeat(np.eye(4), [len(one) for one in features], axis=0)
    model = Ridge(alpha=penalty).fit(torch.cat(features).double().numpy(), truth)
    found = ridge(statistics(features), penalty)
    torch.testing.assert_close(found.weight.double(), torch.from_numpy(model.coef_), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.bias.double(), torch.from_numpy(model.intercept_), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 12), (9, 10)])
def test_lda_leaves_images_out_exactly(shape: tuple[int, int]) -> None:
    """Against fitting anew without each image, with the multiple of the identity that all images give."""
    features, shrinkage = classes(3, shape), 0.2
    model = predictors._Gaussians(statistics(features))
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

    best = min((float(scale.mean()) * one for one in predictors.PENALTIES), key=error)
    assert_same(ridge(statistics(features)), ridge(statistics(features), best))


def test_lda_chooses_more_shrinkage_where_images_are_few() -> None:
    """Of correlated features, where the covariance is worth knowing."""
    mixing = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 30))).float()
    chosen = []
    for count in (4, 30):
        found = [
            predictors._Gaussians(statistics([one @ mixing for one in classes(6, (count, 30), seed)]))
            for seed in range(5)
        ]
        losses = [sum(model.measured(one).loss for model in found) for one in predictors.SHRINKAGES]
        chosen.append(predictors.SHRINKAGES[int(np.argmin(losses))])
    assert chosen[1] < 0.5 < chosen[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_probabilities_are_roughly_calibrated(name: str, spread: float) -> None:
    many = classes(4, (420, 30), spread=spread)
    predictor = PREDICTORS[name](statistics([one[:20] for one in many]))
    queries, labels = torch.cat([one[20:] for one in many]), torch.arange(4).repeat_interleave(400)
    probabilities = predictor.probabilities(queries)
    accuracy = float((probabilities.argmax(dim=1) == labels).float().mean())
    assert 0.3 < accuracy < 0.99
    assert float(probabilities.amax(dim=1).mean()) == pytest.approx(accuracy, abs=0.15)
    assert float(F.nll_loss(probabilities.log(), labels)) < math.log(4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_scale_of_the_features_does_not_matter(name: str, factor: float) -> None:
    features, queries = classes(4, WIDE), torch.cat(classes(4, WIDE, seed=1))
    plain = PREDICTORS[name](statistics(features)).probabilities(queries)
    scaled = PREDICTORS[name](statistics([factor * one for one in features])).probabilities(factor * queries)
    torch.testing.assert_close(scaled, plain, rtol=1e-3, atol=1e-4)


DEGENERATE = {
    "one class": [classes(1, WIDE)[0]],
    "one image": [classes(1, WIDE)[0][:1]],
    "one image a class": [one[:1] for one in classes(3, WIDE)],
    "one class of one image among others": [*classes(2, WIDE), classes(1, WIDE, seed=1)[0][:1]],
    "identical images": [one[:1].repeat(5, 1) for one in classes(3, WIDE)],
    "identical compressed images": [one[:1].repeat(50, 1) for one in classes(3, WIDE)],
    "zero features": [torch.zeros(4, 6)] * 3,
    "the same images in two classes": classes(1, WIDE) * 2,
    "one dimension": classes(3, (6, 1), spread=5),
    "many images in one dimension": classes(3, (60, 1), spread=9),
    "a constant dimension": [torch.cat([one, torch.ones(12, 1)], dim=1) for one in classes(3, WIDE)],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_classes(name: str, case: str) -> None:
    features = DEGENERATE[case]
    predictor = PREDICTORS[name](statistics(features))
    assert predictor.temperature > 0
    assert predictor.weight.shape == (len(features), features[0].shape[1])
    probabilities = predictor.probabilities(torch.cat(features))
    assert torch.isfinite(probabilities).all()
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(len(probabilities)))
    if "a class" in case or "identical" in case:
        labels = torch.arange(len(features)).repeat_interleave(torch.tensor([len(one) for one in features]))
        assert probabilities.argmax(dim=1).tolist() == labels.tolist()
        assert float(probabilities.amax(dim=1).min()) > 0.6
