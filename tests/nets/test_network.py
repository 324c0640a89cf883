from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import run_quietly, settings_for
from cscct.errors import UserError
from cscct.nets import (
    BACKBONES,
    DEPTHS,
    HEADS,
    IMPRINTS,
    Depths,
    LinearHead,
    Network,
    build_network,
    register_backbone,
    register_head,
    register_imprint,
)


def gen(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(head: str = "cosine", *, rows: int = 1, relu_head: bool = False, classes: int = 3) -> Network:
    network = build_network("lucir-resnet", 8, 1, head, rows, gen(), relu_head=relu_head)
    network.head.grow(network.head.init_weights(classes, gen(2)))
    return network


def images(k: int = 4) -> torch.Tensor:
    return torch.randn(k, 1, 8, 8, generator=gen(3))


@pytest.mark.parametrize("backbone", [name for name in sorted(BACKBONES) if not name.endswith("18")])
@pytest.mark.parametrize(("head", "rows"), [("linear", 1), ("cosine", 1), ("proxies", 4)])
def test_output(backbone: str, head: str, rows: int) -> None:
    network = build_network(backbone, 14, 1, head, rows, gen(), pretrained=False).eval()
    assert isinstance(network.head, HEADS[head])
    network.head.grow(network.head.init_weights(3, gen(2)))
    output = network(images())
    assert len(output.maps) == {"podnet": 4, "lucir": 3, "efficientnet": 8}[backbone.partition("-")[0]]
    torch.testing.assert_close(output.features, output.maps[-1].mean(dim=(2, 3)))
    torch.testing.assert_close(output.scores, network.head(output.features))
    with torch.no_grad():
        network.head.scale.fill_(4.0)
    output = network(images())
    torch.testing.assert_close(output.logits, 4.0 * output.scores)
    assert output.scale is network.head.scale


def test_relu_head_reads_the_cut_feature_and_gives_the_signed_one() -> None:
    network, plain = build("linear", relu_head=True), build("linear")
    output = network(images())
    cut = F.relu(output.maps[-1]).mean(dim=(2, 3))
    torch.testing.assert_close(output.scores, network.head(cut))
    assert (output.maps[-1] < 0).any()
    torch.testing.assert_close(output.features, plain(images()).features)
    assert (output.scores - plain(images()).scores).abs().max() > 1e-3


def test_teacher_is_a_frozen_copy() -> None:
    network = build().train()
    teacher = network.frozen_copy()
    assert network.training
    assert all(parameter.requires_grad for parameter in network.backbone.parameters())
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    before = {key: value.clone() for key, value in teacher.state_dict().items()}
    network.head.grow(network.head.init_weights(2, gen(5)))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    F.cross_entropy(network(images()).logits, torch.tensor([0, 1, 2, 3])).backward()
    optimiser.step()
    teacher(images())
    assert all(torch.equal(value, before[key]) for key, value in teacher.state_dict().items())
    assert teacher(images()).scores.shape == (4, 3)
    assert not teacher(images()).scores.requires_grad


@pytest.mark.parametrize(("head", "rows"), [("linear", 1), ("cosine", 1), ("proxies", 4)])
def test_weights_can_be_stored_and_put_back(head: str, rows: int) -> None:
    """Into a network with another number of classes."""
    source, target = build(head, rows=rows), build_network("lucir-resnet", 8, 1, head, rows, gen(6))
    source.head.grow(source.head.init_weights(2, gen(7)))
    with torch.no_grad():
        source.head.scale.fill_(3.0)
    source(images())  # moves the running statistics
    target.load(source.state_dict())
    assert target.head.classes == 5
    assert {name: tensor.shape for name, tensor in target.state_dict().items()} == {
        name: tensor.shape for name, tensor in source.state_dict().items()
    }
    assert torch.equal(target.eval()(images()).logits, source.eval()(images()).logits)
    shared = {parameter.untyped_storage().data_ptr() for parameter in source.parameters()}
    assert not shared & {parameter.untyped_storage().data_ptr() for parameter in target.parameters()}
    assert [tuple(parameter.shape) for parameter in target.head.trainable(old=True, scale=True)] == [
        tuple(parameter.shape) for parameter in source.head.trainable(old=True, scale=True)
    ]


@pytest.mark.parametrize("channels_last", [False, True])
def test_memory_layout_does_not_change_the_result(channels_last: bool) -> None:
    network = build().eval()
    expected = network(images()).scores
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
    inputs = images().to(memory_format=torch.channels_last)
    torch.testing.assert_close(network(inputs).scores, expected, rtol=1e-4, atol=1e-5)


def test_a_backbone_and_a_head_of_a_plugin(tmp_path: Path) -> None:
    """With another rule for depths, and another head."""

    class Wide(nn.Module):
        def __init__(self, channels: int, depth: int):
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(channels if i == 0 else 8, 8, 3, padding=1) for i in range(depth))
            self.features = 8

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for layer in self.layers:
                x = layer(x)
            return (x,)

    class Half(LinearHead):
        """Half of the logits."""

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return 0.5 * super().forward(features)

    two = Depths("2 or 3", lambda depth: depth in (2, 3))
    register_backbone("wide", two)(lambda channels, depth, generator: Wide(channels, depth))
    register_head("half")(Half)
    register_imprint("zeros")(lambda features, old, rows, seed: torch.zeros(len(features) * rows, old.shape[1]))
    try:
        sets = ("network.backbone=wide", "network.head=half", "network.imprint=zeros", "data.train_per_class=20")
        result = run_quietly(tmp_path / "run", "replay", *sets, "network.depth=3", "train.epochs=1")
        assert result["status"] == "finished"
        with pytest.raises(UserError, match=r"network\.depth of wide must be 2 or 3, not 8"):
            settings_for("replay", "digits", *sets)
    finally:
        for registry, name in ((BACKBONES, "wide"), (HEADS, "half"), (IMPRINTS, "zeros"), (DEPTHS, "wide")):
            del registry[name]  # type: ignore[attr-defined]
