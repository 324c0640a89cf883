"""The last stages twice."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cscct.errors import UserError
from cscct.nets import StagedBackbone
from cscct.nets.dual import DualBackbone


def small() -> StagedBackbone:
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.ReLU()) for a, b in ((4, 5), (5, 6), (6, 7))]
    return StagedBackbone(nn.Conv2d(3, 4, 3, 2, 1), stages, features=7)


@pytest.mark.parametrize("stage", [1, 2])
def test_the_last_map_is_that_of_both(stage: int) -> None:
    backbone, images = small(), torch.rand(2, 3, 32, 32)
    before = [one.clone() for one in backbone(images)]
    dual = DualBackbone.of(backbone, stage)
    with torch.no_grad():
        for weight in dual.tuned.parameters():
            weight.mul_(1.5)
    assert (dual.features, dual.stage) == (14, stage)
    *maps, last = dual(images)
    *alone, tuned = dual.fine_tuned(images)
    torch.testing.assert_close(last, torch.cat([before[-1], tuned], dim=1))
    assert not torch.equal(before[-1], tuned)
    for one, other in zip(maps, alone[stage:], strict=True):
        torch.testing.assert_close(one, other)


def test_weights_by_name() -> None:
    dual = DualBackbone.of(small(), 2)
    other = DualBackbone.of(copy.deepcopy(small()), 2)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    other.load_state_dict(dual.state_dict())
    images = torch.rand(1, 3, 16, 16)
    torch.testing.assert_close(other(images)[-1], dual(images)[-1])


def test_a_stage_that_is_not_there() -> None:
    with pytest.raises(UserError, match="has the stages 0 to 2"):
        DualBackbone.of(small(), 3)
