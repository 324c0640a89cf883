"""What all predictors have in common."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cscct.predictors import PREDICTORS, ClassStatistics, LinearPredictor, lda, ridge
from feature_classes import TALL, WIDE, assert_same, classes, statistics

NAMES = list(PREDICTORS)


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
