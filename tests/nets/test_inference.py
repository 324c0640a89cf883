"""Copies of networks for inference."""

import pytest
import torch
from torch import nn

from cscct.nets import BACKBONES, Network, build_network, for_inference

ROUNDING = 1e-5  # of the largest value: what folding may change


def trained_like(backbone: str, depth: int = 14, side: int = 16) -> Network:
    """A network whose batch norms have non-trivial statistics and weights."""
    generator = torch.Generator().manual_seed(1)
    network = build_network(backbone, depth, 3, "cosine", 1, generator, pretrained=False)
    network.head.grow(network.head.init_weights(3, generator))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values, low, high in ((module.weight, 0.5, 1.5), (module.bias, -0.5, 0.5)):
                nn.init.uniform_(values, low, high, generator=generator)
    network.train()
    for _ in range(3):
        network(3 * torch.randn(8, 3, side, side, generator=generator) + 1)
    return network


def images(k: int = 5, side: int = 16) -> torch.Tensor:
    return torch.randn(k, 3, side, side, generator=torch.Generator().manual_seed(2))


def norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_folding_changes_only_roundings(backbone: str) -> None:
    side = 48 if backbone.endswith("18") else 16
    network = trained_like(backbone, side=side)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    folded, plain = for_inference(network), for_inference(network, fold=False)
    assert norms(folded) == 0
    assert norms(plain) == norms(network) > 0
    with torch.no_grad():
        actual, expected = folded(images(side=side)), plain(images(side=side))
    pairs = [*zip(actual.maps, expected.maps, strict=True), (actual.features, expected.features)]
    for x, y in pairs:
        assert (x - y).abs().max() < ROUNDING * y.abs().max()
    torch.testing.assert_close(actual.scores, expected.scores, atol=ROUNDING, rtol=0)
    assert network.training  # the network itself is left alone
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("backbone", ["lucir-resnet", "podnet-resnet"])
def test_folding_costs_16_bits_no_precision(backbone: str) -> None:
    """With bf16 the folded weights are rounded instead of the others: as far from 32 bits as without folding."""
    network = trained_like(backbone)
    exact = for_inference(network, fold=False)(images(64)).features
    errors = {}
    for fold in (True, False):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            features = for_inference(network, fold=fold)(images(64)).features.float()
        errors[fold] = float((features - exact).norm() / exact.norm())
    assert 0 < errors[False] < 0.03
    assert errors[True] < 1.5 * errors[False]


class Odd(nn.Module):
    """A backbone whose norm is registered after the convolution but applied before it."""

    features = 4

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.conv(self.norm(x)),)


def test_unknown_structures_are_not_folded() -> None:
    network = trained_like("lucir-resnet")
    network.backbone = Odd()  # type: ignore[assignment]
    network.head = nn.Identity()  # type: ignore[assignment]
    network.head.scale = torch.ones(())  # type: ignore[assignment]
    for _ in range(3):
        network(2 * images() + 1)
    with torch.no_grad():
        torch.testing.assert_close(for_inference(network)(images()).features, network.eval()(images()).features)


def test_compiling_changes_no_names() -> None:
    network = trained_like("lucir-resnet", depth=8)
    compiled = for_inference(network, fold=False, compiled=True)  # when first used
    assert compiled.state_dict().keys() == network.state_dict().keys()
    assert compiled.backbone._compiled_call_impl is not None
    assert compiled.frozen_copy().backbone._compiled_call_impl is None
