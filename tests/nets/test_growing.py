"""Growing backbones: features, frozen branches, state dicts and frozen stages."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from cscct.errors import UserError
from cscct.nets import GrowingBackbone, Network, build_network, for_inference, growing_backbone, join, split
from cscct.nets.resnet import lucir_resnet


def network(expand: str, train_from: int = 0, head: str = "linear") -> Network:
    net = build_network(
        "lucir-resnet", 8, 1, head, 1, Generator().manual_seed(1), relu_head=True, expand=expand, train_from=train_from
    )
    net.head.grow(net.head.init_weights(3, Generator().manual_seed(2)))
    return net


def grown(expand: str, train_from: int = 0, head: str = "linear") -> Network:
    net = network(expand, train_from, head)
    net.grow(Generator().manual_seed(3))
    net.head.grow(net.head.init_weights(2, Generator().manual_seed(4)))
    return net


IMAGES = torch.randn(4, 1, 8, 8, generator=Generator().manual_seed(0))


@pytest.mark.parametrize("head", ["linear", "cosine", "proxies"])
@pytest.mark.parametrize(("expand", "train_from"), [("extractor", 0), ("extractor", 1), ("block", 0), ("block", 1)])
def test_features_are_concatenated(expand: str, train_from: int, head: str) -> None:
    before = network(expand, train_from, head).eval()
    after = grown(expand, train_from, head).eval()
    features = after(IMAGES).features
    assert features.shape == (4, 2 * before(IMAGES).features.shape[1])
    assert torch.equal(features[:, :64], before(IMAGES).features)  # the old branch has not changed
    assert torch.equal(features[:, 64:], features[:, :64])  # the new branch starts as a copy
    assert after(IMAGES).scores.shape == (4, 5)
    assert len(after(IMAGES).maps) == len(before(IMAGES).maps)


@pytest.mark.parametrize("expand", ["extractor", "block"])
def test_only_the_newest_branch_is_trained(expand: str) -> None:
    net = grown(expand).train()
    backbone = net.backbone
    assert isinstance(backbone, GrowingBackbone)
    trained = net.trained_backbone(newest=True)
    old = {name: tensor.clone() for name, tensor in backbone.branches[0].state_dict().items()}
    net(IMAGES).scores.square().sum().backward()
    assert {id(p) for p in trained} == {id(p) for p in backbone.branches[1].parameters()}
    assert all(p.grad is not None for p in trained)
    assert all(p.grad is None for p in backbone.branches[0].parameters())
    assert all(torch.equal(tensor, old[name]) for name, tensor in backbone.branches[0].state_dict().items())
    shared = [] if backbone.shared is None else list(backbone.shared.parameters())
    assert len(net.trained_backbone()) == len(trained) + len(shared)


@pytest.mark.parametrize(("expand", "train_from"), [("extractor", 0), ("extractor", 1), ("block", 0)])
def test_state_dict_is_loaded_into_a_new_network(expand: str, train_from: int) -> None:
    net = grown(expand, train_from).eval()
    fresh = build_network(
        "lucir-resnet", 8, 1, "linear", 1, Generator(), relu_head=True, expand=expand, train_from=train_from
    ).eval()
    fresh.load(net.state_dict())
    assert torch.equal(fresh(IMAGES).scores, net(IMAGES).scores)
    torch.testing.assert_close(for_inference(fresh)(IMAGES).scores, net(IMAGES).scores, atol=1e-5, rtol=1e-5)
    net.load(network(expand, train_from).state_dict())  # back to one branch
    assert net(IMAGES).scores.shape == (4, 3)


@pytest.mark.parametrize(("expand", "train_from"), [("extractor", 1), ("block", 1), ("block", 2)])
def test_frozen_stages_are_split_and_joined(expand: str, train_from: int) -> None:
    net = grown(expand, train_from).eval()
    expected, names = net(IMAGES), list(net.state_dict())
    frozen, net.backbone = split(net.backbone, train_from)
    scores = net(frozen(IMAGES)).scores
    assert torch.equal(scores, expected.scores)
    net.backbone = join(frozen, net.backbone)
    assert sorted(net.state_dict()) == sorted(names)
    assert torch.equal(net(IMAGES).scores, expected.scores)


def test_compression_keeps_the_first_branch() -> None:
    net = grown("extractor").eval()
    first = net(IMAGES).features[:, :64]
    old = net.head.old_weight.detach()[:, :64].clone()
    net.compress(Generator().manual_seed(5))
    assert torch.equal(net(IMAGES).features, first)
    assert torch.equal(net.head.old_weight, old)


def test_widened_head_keeps_weights() -> None:
    net = network("extractor")
    weight = net.head.new_weight.detach().clone()
    net.head.widen(128, Generator().manual_seed(3))
    assert torch.equal(net.head.new_weight[:, :64], weight)
    assert net.head.features == 128
    assert net.head.new_weight[:, 64:].abs().min() > 0


def test_reset_head_changes_all_weights() -> None:
    head = grown("extractor").head
    before = head.weight.detach().clone()
    head.reset(Generator().manual_seed(9))
    assert not (head.weight == before).any()


def test_block_needs_stages() -> None:
    backbone = GrowingBackbone(lucir_resnet(1, 8, Generator()), 64)
    with pytest.raises(UserError, match=r"network\.expand"):
        growing_backbone(backbone, "block")
    with pytest.raises(UserError, match=r"network\.train_from"):
        split(backbone, 1)
