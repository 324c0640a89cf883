"""Images that are like nothing that was learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cscct import IncrementalClassifier
from cscct.classifier.unknown import NoveltyDetector
from cscct.predictors import ClassStatistics


def cloud(direction: int, count: int, seed: int, width: int = 40) -> torch.Tensor:
    """Features around one axis."""
    noise = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return torch.eye(width)[direction] * 6 + noise


@pytest.mark.parametrize("counts", [(30, 30), (60, 70), (30,), (1, 30), (2, 2), (1, 1), (1,), (60,)])
def test_other_classes_are_unknown(counts: tuple[int, ...]) -> None:
    """With samples, with sums alone (more images than dimensions), with one class, with one image a class."""
    detector = NoveltyDetector([ClassStatistics.of(cloud(i, n, i)) for i, n in enumerate(counts)])
    known = torch.cat([torch.empty(0, 40), *(cloud(i, 50, 50 + i) for i, n in enumerate(counts) if n > 1)])
    strange = cloud(20, 50, 99)
    assert detector.unknown(strange).float().mean() > 0.9
    if len(known):
        assert detector.unknown(known).float().mean() < 0.5
        assert detector.scores(known).median() > detector.scores(strange).max()


def test_identical_images_are_known() -> None:
    same = torch.ones(5, 8)
    assert not NoveltyDetector([ClassStatistics.of(same)]).unknown(same).any()


def test_it_follows_what_is_learned_and_forgotten() -> None:
    model = IncrementalClassifier(None).learn(cloud(0, 20, 0).numpy(), [0] * 20)
    other = cloud(5, 20, 1).numpy()
    assert model.unknown(other).all()
    assert not model.learn(other, [1] * 20).unknown(other).mean() > 0.3
    assert model.forget(1).unknown(other).all()
    assert model.unknown(other).dtype == np.bool_
