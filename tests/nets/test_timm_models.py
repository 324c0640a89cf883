"""Models of timm as backbones: the smallest ones, with random weights and with weights from files."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from cscct import IncrementalClassifier
from cscct.classifier.networks import transform_for
from cscct.config.layers import resolve
from cscct.data.inputs import ImageFormat, ItemReader
from cscct.errors import UserError
from cscct.nets.names import with_digest
from cscct.nets.timm_models import fetch_weights, import_timm, timm_backbone
from cscct.nets.weights import build_backbone
from cscct.yamltext import parse_override
from pictures import draw
from small_models import pictures

needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="pip install 'cscct[timm]'")
RESNET, VIT = "test_resnet.r160_in1k", "test_vit.r160_in1k"


def gen() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def weights(folder: Path, name: str) -> tuple[Path, Any]:
    """A file as timm publishes it, with the classifier, and the network it belongs to."""
    torch.manual_seed(3)
    module = import_timm(name).create_model(name, pretrained=False).eval()
    path = folder / "model.safetensors"
    save_file(module.state_dict(), path)
    return path, module


@needs_timm
@pytest.mark.parametrize("name", [RESNET, VIT])
def test_random_weights_and_a_file(name: str, tmp_path: Path) -> None:
    images = torch.rand(2, 3, 160, 160)
    random = build_backbone(f"timm:{name}", 32, 3, gen(), pretrained=False)
    again = build_backbone(f"timm:{name}", 32, 3, gen(), pretrained=False)
    assert all(torch.equal(a, b) for a, b in zip(random.parameters(), again.parameters(), strict=True))
    path, module = weights(tmp_path, name)
    backbone = build_backbone(with_digest(f"timm:{name}:{path}"), 32, 3, gen()).eval()
    with torch.no_grad():
        maps = backbone(images)
        expected = module.forward_head(module.forward_features(images), pre_logits=True)
    assert len(maps) > 2
    assert maps[-1].shape[1] == backbone.features == expected.shape[1]
    torch.testing.assert_close(maps[-1][..., 0, 0], expected)
    save_file({"conv.weight": torch.ones(2)}, path)
    with pytest.raises(UserError, match="do not fit"):
        build_backbone(f"timm:{name}:{path}", 32, 3, gen())


@needs_timm
def test_weights_are_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_timm(RESNET)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("timm.models._hub.hf_hub_download", lambda *words, **options: pytest.fail("a download"))
    with pytest.raises(UserError, match=f"cscct data fetch timm:{RESNET}"):
        build_backbone(f"timm:{RESNET}", 32, 3, gen())
    for name, message in (("test_resnet.other", "Invalid pretrained tag"), ("resnot", "no pretrained weights")):
        with pytest.raises(UserError, match=message):
            build_backbone(f"timm:{name}", 32, 3, gen())
    path, module = weights(tmp_path, RESNET)
    cached = tmp_path / f"models--timm--{RESNET}"
    (cached / "snapshots" / "1").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1")
    shutil.copy(path, cached / "snapshots" / "1")
    backbone = timm_backbone(RESNET, 3, gen())
    torch.testing.assert_close(backbone.module.module.conv1[0].weight, module.conv1[0].weight)


@needs_timm
def test_fetch_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    import_timm(RESNET)
    wanted = []

    def download(**options: Any) -> str:
        wanted.append(options["repo_id"])
        raise OSError("no network")

    monkeypatch.setattr("timm.models._hub.hf_hub_download", download)
    with pytest.raises(UserError, match=RESNET):
        fetch_weights(RESNET)
    assert wanted[0] == f"timm/{RESNET}"


@needs_timm
@pytest.mark.parametrize("name", [RESNET, VIT, "resnet18.a1_in1k"])
def test_images_are_prepared_as_timm_does(name: str, tmp_path: Path) -> None:
    timm = import_timm(name)
    module = timm.create_model(name, pretrained=False)
    image = draw(tmp_path / "x.png", size=(400, 300))
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=module))
    reader = ItemReader([image], ImageFormat(transform_for(f"timm:{name}", module, None)))
    pixels = [pixel for pixel in reader.pixels([0]) if isinstance(pixel, np.ndarray)]
    torch.testing.assert_close(reader.normalized(pixels)[0], transform(Image.open(image)), atol=1e-5, rtol=0)


@needs_timm
def test_a_model_learns_and_is_loaded_without_the_file(tmp_path: Path) -> None:
    path, _ = weights(tmp_path, RESNET)
    model = IncrementalClassifier(f"timm:{RESNET}:{path}")
    model.learn(pictures((200, 60, 60), 4), "red").learn(pictures((60, 60, 200), 4), "blue")
    model.save(tmp_path / "m")
    path.unlink()
    again = IncrementalClassifier.load(tmp_path / "m")
    queries = pictures((120, 60, 120), 3, 2)
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
    assert again.reader_.format.transform == model.reader_.format.transform
    settings = resolve("lucir", "folder", overrides=[parse_override(f"network.backbone=timm:{RESNET}")])
    assert settings.network.batch_norm == "frozen"


def test_timm_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"cscct\[timm\]"):
        build_backbone("timm:resnet50", 32, 3, gen())
