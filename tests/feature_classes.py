"""Random features of several classes, and the comparison of predictors."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cscct.features import ClassStatistics, LinearPredictor

WIDE, TALL = (12, 40), (60, 8)  # samples per class and dimensions: samples are stored, and only their scatter is stored


def classes(count: int, shape: tuple[int, int], seed: int = 0, spread: float = 1.0) -> list[Tensor]:
    rng = np.random.default_rng([count, *shape, seed])
    return [torch.from_numpy(rng.normal(size=shape) + spread * rng.normal(size=shape[1])).float() for _ in range(count)]


def statistics(features: list[Tensor], *, keep_samples: bool = False) -> list[ClassStatistics]:
    return [ClassStatistics.of(rows, keep_samples=keep_samples) for rows in features]


def assert_same(a: LinearPredictor, b: LinearPredictor, rtol: float = 1e-5) -> None:
    for x, y in ((a.weight, b.weight), (a.bias, b.bias)):
        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol * float(y.abs().max()))
    assert a.temperature == pytest.approx(b.temperature, rel=0.02)
