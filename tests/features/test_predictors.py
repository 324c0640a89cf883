"""Contract tests of all predictors that need no training."""

import math

import pytest
import torch
import torch.nn.functional as F

import cscct.methods  # noqa: F401  (registers predictors)
from cscct import UserError
from cscct.features import (
    DEFAULT_PREDICTORS,
    NETWORK_PREDICTORS,
    PREDICTORS,
    ClassStatistics,
    FittedPredictor,
    fit_predictors,
    lda,
    ridge,
)
from feature_classes import TALL, WIDE, classes, statistics

NAMES = list(PREDICTORS)
SMALL = {"ranpac": {"dimension": 50}}


def fit(name: str, features: list[torch.Tensor]) -> FittedPredictor:
    predictor = PREDICTORS[name](**SMALL.get(name, {}))
    return predictor.fit(statistics(features, keep_samples=predictor.reads_samples))


def test_registered_predictors() -> None:
    assert NAMES == ["ncm", "lda", "ridge", "fecam", "ranpac"]
    assert set(DEFAULT_PREDICTORS) - set(NETWORK_PREDICTORS) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_order_and_grouping_do_not_matter(name: str, shape: tuple[int, int]) -> None:
    features, queries = classes(5, shape), torch.cat(classes(5, shape, seed=1))
    whole = fit(name, features).log_probabilities(queries)
    predictor = PREDICTORS[name](**SMALL.get(name, {}))
    for order in ([4, 2, 0, 1, 3], [1, 0, 2, 4, 3]):
        parts = []
        for label in order:
            rows = features[label][torch.randperm(shape[0], generator=torch.Generator().manual_seed(label))]
            first, *rest = rows.split([1, 2, 0, shape[0] - 3])
            stats = ClassStatistics.of(first)
            for features_of_part in rest:
                stats = stats.extended(features_of_part, keep_samples=predictor.reads_samples)
            parts.append(stats)
        torch.testing.assert_close(
            predictor.fit(parts).log_probabilities(queries), whole[:, order], rtol=0.02, atol=1e-3
        )


@pytest.mark.parametrize("name", NAMES)
def test_removing_a_class_equals_never_adding_it(name: str) -> None:
    features = classes(4, WIDE)
    remaining = statistics(features)
    del remaining[1]
    expected = fit(name, [features[0], features[2], features[3]]).tensors()
    predictor = PREDICTORS[name](**SMALL.get(name, {})).fit(remaining)
    assert predictor.tensors().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in predictor.tensors().items())


@pytest.mark.parametrize("name", NAMES)
def test_fitted_predictors_survive_a_round_trip_through_tensors(name: str) -> None:
    predictor, queries = fit(name, classes(3, WIDE)), torch.cat(classes(3, WIDE, seed=1))
    restored = PREDICTORS[name].fitted.from_tensors(predictor.tensors())
    assert restored.temperature == predictor.temperature
    assert torch.equal(restored.predict(queries), predictor.predict(queries)) or name == "ncm"  # `unit` is not stored
    assert restored.fits(3, WIDE[1])
    assert not restored.fits(4, WIDE[1])
    assert not restored.fits(3, WIDE[1] + 1)
    assert predictor.log_probabilities(queries).dtype == torch.float64


def test_statistics_for_one_predictor_do_not_change_another() -> None:
    """Samples that one predictor reads are hidden from those that read sums, so that results of runs are comparable."""
    features, queries = classes(3, TALL), torch.cat(classes(3, TALL, seed=1))
    both = {"lda": PREDICTORS["lda"](), "fecam": PREDICTORS["fecam"]()}
    fitted = fit_predictors(both, statistics(features, keep_samples=True), seed=0)
    assert torch.equal(fitted["lda"].scores(queries), lda(statistics(features)).scores(queries))
    with pytest.raises(UserError, match="only sums"):
        fit_predictors(both, statistics(features), seed=0)


def test_compressed_classes_predict_as_uncompressed_ones() -> None:
    features = classes(3, (20, 20)) + [rows[:9] for rows in classes(2, (20, 20), seed=1)]
    plain = statistics(features)
    packed = [
        ClassStatistics(stats.count, stats.total, stats.directions, torch.linalg.qr(stats.centred, mode="r").R[:-1])
        for stats in plain[:3]
    ] + plain[3:]
    assert [stats.samples is None for stats in packed] == [True] * 3 + [False] * 2
    for predictor, expected in ((lda(packed, 0.3), lda(plain, 0.3)), (ridge(packed, 2.0), ridge(plain, 2.0))):
        torch.testing.assert_close(predictor.weight, expected.weight, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(predictor.bias, expected.bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_probabilities_are_roughly_calibrated(name: str, spread: float) -> None:
    many = classes(4, (420, 30), spread=spread)
    predictor = fit(name, [rows[:20] for rows in many])
    queries, labels = torch.cat([rows[20:] for rows in many]), torch.arange(4).repeat_interleave(400)
    probabilities = predictor.probabilities(queries)
    accuracy = float((probabilities.argmax(dim=1) == labels).float().mean())
    assert 0.3 < accuracy < 0.99
    assert float(probabilities.amax(dim=1).mean()) == pytest.approx(accuracy, abs=0.15)
    assert float(F.nll_loss(probabilities.log(), labels)) < math.log(4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_predictors_do_not_depend_on_the_scale_of_the_features(name: str, factor: float) -> None:
    features, queries = classes(4, WIDE), torch.cat(classes(4, WIDE, seed=1))
    plain = fit(name, features).probabilities(queries)
    scaled = fit(name, [factor * rows for rows in features]).probabilities(factor * queries)
    torch.testing.assert_close(scaled, plain, rtol=1e-3, atol=1e-4)


DEGENERATE = {
    "one class": [classes(1, WIDE)[0]],
    "one image": [classes(1, WIDE)[0][:1]],
    "one image per class": [rows[:1] for rows in classes(3, WIDE)],
    "one class of one image among others": [*classes(2, WIDE), classes(1, WIDE, seed=1)[0][:1]],
    "identical images": [rows[:1].repeat(5, 1) for rows in classes(3, WIDE)],
    "identical compressed images": [rows[:1].repeat(50, 1) for rows in classes(3, WIDE)],
    "zero features": [torch.zeros(4, 6)] * 3,
    "the same images in two classes": classes(1, WIDE) * 2,
    "one dimension": classes(3, (6, 1), spread=5),
    "many images in one dimension": classes(3, (60, 1), spread=9),
    "a constant dimension": [torch.cat([rows, torch.ones(12, 1)], dim=1) for rows in classes(3, WIDE)],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_classes(name: str, case: str) -> None:
    features = DEGENERATE[case]
    predictor = fit(name, features)
    assert predictor.fits(len(features), features[0].shape[1])
    probabilities = predictor.probabilities(torch.cat(features))
    assert torch.isfinite(probabilities).all()
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(len(probabilities)))
    if "per class" in case or "identical" in case:
        labels = torch.arange(len(features)).repeat_interleave(torch.tensor([len(rows) for rows in features]))
        assert probabilities.argmax(dim=1).tolist() == labels.tolist()
        assert float(probabilities.amax(dim=1).min()) > 0.6
