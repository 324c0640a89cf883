"""Backbones by name, with weights from a file."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cscct.config import resolve
from cscct.errors import UserError
from cscct.nets import build_backbone, parse_backbone, with_digest
from cscct.yamltext import parse_override


def gen(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Weights of a small network."""
    path = tmp_path / "own.safetensors"
    save_file(build_backbone("lucir-resnet", 8, 3, gen(7)).state_dict(), path)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "lucir-resnet",
        "timm:resnet50.a1_in1k",
        "timm:vit:/a/b.safetensors@0123456789abcdef",
        "lucir-resnet:/a:b/c.safetensors@0123456789abcdef",
    ],
)
def test_parse_backbone(name: str) -> None:
    assert str(parse_backbone(name)) == name


def test_weights_from_a_file(file: Path) -> None:
    expected = build_backbone("lucir-resnet", 8, 3, gen(7)).state_dict()
    loaded = build_backbone(with_digest(f"lucir-resnet:{file}"), 8, 3, gen()).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
    without = build_backbone(f"lucir-resnet:{file}", 8, 3, gen(), pretrained=False).state_dict()
    assert not torch.equal(without["stem.0.weight"], expected["stem.0.weight"])


def test_weights_from_the_model_of_a_run(tmp_path: Path) -> None:
    expected = build_backbone("lucir-resnet", 8, 3, gen(7)).state_dict()
    more = {"head.new_weight": torch.zeros(2, 64), "class_means": torch.zeros(2, 64)}
    save_file(
        {**{f"backbone.{name}": tensor for name, tensor in expected.items()}, **more}, tmp_path / "model.safetensors"
    )
    loaded = build_backbone(f"lucir-resnet:{tmp_path / 'model.safetensors'}", 8, 3, gen()).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def test_the_hash_of_the_file_is_part_of_the_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    settings = resolve("lucir", "digits", overrides=[parse_override("network.backbone=lucir-resnet:own.safetensors")])
    name = settings.network.backbone
    assert parse_backbone(name).file == file
    assert parse_backbone(name).digest is not None
    assert resolve(config=settings.dump()).network.backbone == name
    save_file({"other": torch.zeros(1)}, file)
    with pytest.raises(UserError, match=r"own\.safetensors have changed since the run was started"):
        build_backbone(name, 8, 3, gen())
    assert build_backbone(name, 8, 3, gen(), pretrained=False)  # as `cscct.load` does: the weights are in the folder


def test_user_errors(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not say what network .* write ARCHITECTURE:a\.safetensors"):
        parse_backbone("a.safetensors")
    with pytest.raises(UserError, match=r"none\.safetensors \(network\.backbone\) cannot be read: No such file"):
        with_digest("lucir-resnet:none.safetensors")
    with pytest.raises(UserError, match=r"do not fit ResNet with these settings: the file lacks stages\.0\.1"):
        build_backbone(f"lucir-resnet:{file}", 14, 3, gen())
    with pytest.raises(UserError, match=r"the file has stem\.0\.weight of shape \(16, 3, 3, 3\)"):
        build_backbone(f"lucir-resnet:{file}", 8, 1, gen())
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no tensors")
    with pytest.raises(UserError, match="cannot be read as a safetensors file"):
        build_backbone(f"lucir-resnet:{bad}", 8, 3, gen())
    with pytest.raises(UserError, match=r"no backbone 'lucir-rsnet' .did you mean 'lucir-resnet'"):
        resolve("lucir", "digits", overrides=[parse_override("network.backbone=lucir-rsnet:x.safetensors")])
