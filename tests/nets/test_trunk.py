"""A backbone in two parts is the backbone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cscct.errors import UserError
from cscct.nets import build_backbone, join, split
from cscct.nets.custom import CustomBackbone


def build(name: str) -> nn.Module:
    return build_backbone(name, 14, 3, torch.Generator().manual_seed(1), pretrained=False).eval()


@pytest.mark.parametrize("name", ["lucir-resnet", "podnet-resnet", "efficientnet-lite0"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_both_parts_together(name: str, stage: int) -> None:
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    whole = build(name)
    with torch.no_grad():
        maps = whole(images)
        trunk, top = split(build(name), stage)
        for found, wanted in zip(top(trunk(images)), maps[stage:], strict=True):
            assert torch.equal(found, wanted)
        for found, wanted in zip(join(trunk, top)(images), maps, strict=True):
            assert torch.equal(found, wanted)


def test_names_are_those_of_the_whole_backbone() -> None:
    whole = build("lucir-resnet")
    names = list(whole.state_dict())
    trunk, top = split(whole, 2)
    assert not any(parameter.requires_grad for parameter in trunk.parameters())
    assert all(parameter.requires_grad for parameter in top.parameters())
    assert [*trunk.state_dict(), *top.state_dict()] == names
    joined = join(trunk, top)
    assert list(joined.state_dict()) == names
    assert joined.features == top.features == 64


def test_a_stage_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"network\.train_from is 3, but the backbone ResNet has the stages 0 to 2"):
        split(build("lucir-resnet"), 3)


def test_a_backbone_without_stages_is_told() -> None:
    module = nn.Conv2d(3, 4, 1)
    module.features = 4  # type: ignore[assignment]
    with pytest.raises(UserError, match="is 1, but the backbone Conv2d is not divided into stages: set it to 0"):
        split(CustomBackbone(module), 1)
