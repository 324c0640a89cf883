"""Detection of unknown images."""

import numpy as np
import pytest
import torch

from cscct import IncrementalClassifier, UserError
from cscct.classifier.unknown import NoveltyDetector
from cscct.features import ClassStatistics


def cloud(direction: int, count: int, seed: int, width: int = 40) -> torch.Tensor:
    """Random features around an axis."""
    noise = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return torch.eye(width)[direction] * 6 + noise


def detector(counts: tuple[int, ...]) -> NoveltyDetector:
    return NoveltyDetector([ClassStatistics.of(cloud(i, n, i)) for i, n in enumerate(counts)])


@pytest.mark.parametrize("counts", [(30, 30), (60, 70), (30,), (1, 30), (60,)])
def test_other_classes_are_unknown(counts: tuple[int, ...]) -> None:
    """With samples, aggregated statistics (more images than dimensions), a single class, and a single image."""
    novelty = detector(counts)
    log_probabilities = torch.zeros(50, len(counts))
    strange = novelty.scores(cloud(20, 50, 99), log_probabilities)
    threshold = novelty.calibration.threshold(0.05)
    assert (strange > threshold).float().mean() > 0.9
    for i, n in enumerate(counts):
        if n > 1:
            known = novelty.scores(cloud(i, 50, 50 + i), log_probabilities)
            assert (known > threshold).float().mean() < 0.5
            assert known.median() < strange.min()


@pytest.mark.parametrize("counts", [(2, 2), (1, 1), (1,), (19,)])
def test_few_images_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="at least 20 learned images"):
        detector(counts).calibration.threshold(0.05)
    assert detector(counts).calibration.detection_rate() is None


def test_identical_images_are_known() -> None:
    same = torch.ones(25, 8)
    novelty = NoveltyDetector([ClassStatistics.of(same)])
    assert not (novelty.scores(same, torch.zeros(25, 1)) > novelty.calibration.threshold(0.05)).any()


def test_rate_and_expected_detection() -> None:
    """On other images of the known classes and of further ones, the rates are roughly those that were asked for and
    estimated. Probabilities help here: the classes differ in directions of little variance only."""
    draws = torch.Generator().manual_seed(0)
    spread = torch.cat([3 * torch.ones(10), 0.4 * torch.ones(20)])
    centres = torch.cat([torch.zeros(24, 10), torch.randn(24, 20, generator=draws)], dim=1) + 4

    def sample(classes: range, each: int) -> tuple[np.ndarray, np.ndarray]:
        y = torch.arange(classes.start, classes.stop).repeat_interleave(each)
        return (centres[y] + spread * torch.randn(len(y), 30, generator=draws)).numpy(), y.numpy()

    model = IncrementalClassifier(None).learn(*sample(range(12), 28))
    assert model.state_.novelty is not None
    assert float(model.state_.novelty.weight) > 0
    known, unknown = sample(range(12), 60)[0], sample(range(12, 24), 60)[0]
    for rate in (0.05, 0.2):
        assert model.unknown(known, rate).mean() == pytest.approx(rate, abs=0.06)
        expected = model.state_.novelty.detection_rate(rate)
        assert model.unknown(unknown, rate).mean() == pytest.approx(expected, abs=0.2)
    assert model.report_.unknown_detection == model.state_.novelty.detection_rate()
    with pytest.raises(UserError, match="between 0 and 1"):
        model.unknown(known, 1.5)


def test_learn_and_forget_update_the_detector() -> None:
    model = IncrementalClassifier(None).learn(cloud(0, 30, 0).numpy(), [0] * 30)
    new = cloud(5, 20, 1).numpy()
    assert "0.1 % false alarms need at least 1000" in str(model.unknown_refusal(0.001))
    assert model.unknown(new).all()
    assert not model.learn(new, [1] * 20).unknown(new).mean() > 0.3
    assert model.forget(1).unknown(new).all()
    assert model.unknown(new).dtype == np.bool_
