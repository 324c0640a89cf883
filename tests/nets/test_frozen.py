"""Backbones split into frozen and trained stages."""

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
        frozen_stages, trained_stages = split(build(name), stage)
        for actual, expected in zip(trained_stages(frozen_stages(images)), maps[stage:], strict=True):
            assert torch.equal(actual, expected)
        for actual, expected in zip(join(frozen_stages, trained_stages)(images), maps, strict=True):
            assert torch.equal(actual, expected)


def test_names_are_those_of_the_whole_backbone() -> None:
    whole = build("lucir-resnet")
    names = list(whole.state_dict())
    frozen, top = split(whole, 2)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in top.parameters())
    assert [*frozen.state_dict(), *top.state_dict()] == names
    joined = join(frozen, top)
    assert list(joined.state_dict()) == names
    assert joined.features == top.features == 64


def test_invalid_stage() -> None:
    with pytest.raises(UserError, match=r"network\.train_from is 3, but the backbone ResNet has the stages 0 to 2"):
        split(build("lucir-resnet"), 3)


def test_backbone_without_stages() -> None:
    module = nn.Conv2d(3, 4, 1)
    module.features = 4  # type: ignore[assignment]
    with pytest.raises(UserError, match="is 1, but the backbone Conv2d is not divided into stages: set it to 0"):
        split(CustomBackbone(module), 1)
