"""Backbones by name: with weights from a file, and those of timm."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cscct.config import resolve
from cscct.errors import UserError
from cscct.nets import build_backbone, parse_backbone, with_digest
from cscct.yamltext import parse_override


def gen(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Weights of a small network that another seed gave."""
    path = tmp_path / "own.safetensors"
    save_file(build_backbone("lucir-resnet", 8, 3, gen(7)).state_dict(), path)
    return path


@pytest.mark.parametrize(
    "name", ["lucir-resnet", "timm:resnet50.a1_in1k", "lucir-resnet:/a:b/c.safetensors@0123456789abcdef"]
)
def test_names_are_taken_apart_and_put_together(name: str) -> None:
    assert str(parse_backbone(name)) == name


def test_weights_from_a_file(file: Path) -> None:
    wanted = build_backbone("lucir-resnet", 8, 3, gen(7)).state_dict()
    found = build_backbone(with_digest(f"lucir-resnet:{file}"), 8, 3, gen()).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    without = build_backbone(f"lucir-resnet:{file}", 8, 3, gen(), pretrained=False).state_dict()
    assert not torch.equal(without["stem.0.weight"], wanted["stem.0.weight"])


def test_weights_from_the_model_of_a_run(tmp_path: Path) -> None:
    wanted = build_backbone("lucir-resnet", 8, 3, gen(7)).state_dict()
    more = {"head.new_weight": torch.zeros(2, 64), "class_means": torch.zeros(2, 64)}
    save_file({**{f"backbone.{name}": one for name, one in wanted.items()}, **more}, tmp_path / "model.safetensors")
    found = build_backbone(f"lucir-resnet:{tmp_path / 'model.safetensors'}", 8, 3, gen()).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_the_hash_of_the_file_is_part_of_the_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    settings = resolve("lucir", "digits", overrides=[parse_override("network.backbone=lucir-resnet:own.safetensors")])
    name = settings.network.backbone
    assert parse_backbone(name).file == file
    assert parse_backbone(name).digest is not None
    assert resolve(config=settings.dump()).network.backbone == name
    save_file({"other": torch.zeros(1)}, file)
    with pytest.raises(UserError, match=r"own\.safetensors have changed since the run was begun"):
        build_backbone(name, 8, 3, gen())
    assert build_backbone(name, 8, 3, gen(), pretrained=False)  # as `cscct.load` does: the weights are in the folder


def test_mistakes_are_told(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not say what network .* write ARCHITECTURE:a\.safetensors"):
        parse_backbone("a.safetensors")
    with pytest.raises(UserError, match=r"none\.safetensors \(network\.backbone\) cannot be read: No such file"):
        with_digest("lucir-resnet:none.safetensors")
    with pytest.raises(UserError, match=r"not those of ResNet as the settings have it: the file lacks stages\.0\.1"):
        build_backbone(f"lucir-resnet:{file}", 14, 3, gen())
    with pytest.raises(UserError, match=r"the file has stem\.0\.weight of shape \(16, 3, 3, 3\)"):
        build_backbone(f"lucir-resnet:{file}", 8, 1, gen())
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no tensors")
    with pytest.raises(UserError, match="cannot be read as a safetensors file"):
        build_backbone(f"lucir-resnet:{bad}", 8, 3, gen())
    with pytest.raises(UserError, match=r"no backbone 'lucir-rsnet' .did you mean 'lucir-resnet'"):
        resolve("lucir", "digits", overrides=[parse_override("network.backbone=lucir-rsnet:x.safetensors")])


class FakeNet(nn.Module):
    """As much of a network of timm as is used: the head widens what is pooled."""

    num_features, head_hidden_size = 4, 6

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(channels, 3, 3, 2), nn.Conv2d(3, 4, 3, 2)
        self.conv_head = nn.Linear(4, 6)

    def forward_intermediates(self, images: Tensor, output_fmt: str) -> tuple[Tensor, list[Tensor]]:
        assert output_fmt == "NCHW"
        first = self.one(images)
        return self.two(first), [first, self.two(first)]

    def forward_head(self, last: Tensor, pre_logits: bool) -> Tensor:
        assert pre_logits
        pooled: Tensor = self.conv_head(last.mean(dim=(2, 3)))
        return pooled


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A module of that name, and what it was asked for."""
    asked: list[dict[str, Any]] = []

    def create_model(name: str, **options: Any) -> nn.Module:
        if name != "fake":
            raise RuntimeError(f"Unknown model ({name})")
        asked.append(options)
        return FakeNet(options["in_chans"])

    module = ModuleType("timm")
    module.create_model = create_model  # type: ignore[attr-defined]
    module.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "timm", module)
    return asked


def test_networks_of_timm(timm: list[dict[str, Any]]) -> None:
    network = build_backbone("timm:fake", 32, 3, gen())
    assert timm == [{"pretrained": True, "in_chans": 3, "num_classes": 0}]
    assert network.features == 6
    maps = network(torch.randn(2, 3, 16, 16))
    assert [one.shape[1] for one in maps] == [3, 4, 6]
    again = build_backbone("timm:fake", 32, 3, gen(), pretrained=False)
    assert timm[1]["pretrained"] is False
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))
    with pytest.raises(UserError, match=r"timm cannot make the network other: Unknown model \(other\)"):
        build_backbone("timm:other", 32, 3, gen())
    settings = resolve("lucir", "folder", overrides=[parse_override("network.backbone=timm:fake")])
    assert settings.network.batch_norm == "frozen"
    assert settings.data.transform.size == 224


def test_timm_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"timm:resnet50, and timm is not installed: pip install timm torchvision"):
        build_backbone("timm:resnet50", 32, 3, gen())
