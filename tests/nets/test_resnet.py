import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cscct.nets import BACKBONES, ResNet
from cscct.nets.resnet import pool

SMALL = ("lucir-resnet", "podnet-resnet")
DEPTHS = {"lucir-resnet": 32, "podnet-resnet": 32, "lucir-resnet18": 18, "podnet-resnet18": 18}


def build(name: str, depth: int | None = None, channels: int = 3, seed: int = 1) -> ResNet:
    return BACKBONES[name](channels, depth or DEPTHS[name], torch.Generator().manual_seed(seed))


def images(k: int, side: int, channels: int = 3) -> Tensor:
    return torch.randn(k, channels, side, side, generator=torch.Generator().manual_seed(2))


def with_random_norms(net: ResNet) -> ResNet:
    """Norms with weights and biases of either sign, so that a map is non-negative only after a ReLU."""
    gen = torch.Generator().manual_seed(3)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, generator=gen)
            nn.init.normal_(module.bias, generator=gen)
    return net.train()


def test_all_backbones_are_tested() -> None:
    assert {name for name in BACKBONES if "resnet" in name} == set(DEPTHS)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lucir-resnet", 466_256),
        ("podnet-resnet", 463_504),
        ("lucir-resnet18", 11_176_512),
        ("podnet-resnet18", 11_168_832),
    ],
)
def test_parameter_count(name: str, count: int) -> None:
    assert sum(parameter.numel() for parameter in build(name).parameters()) == count


@pytest.mark.parametrize(
    ("name", "side", "shapes"),
    [
        ("lucir-resnet", 32, [(16, 32), (32, 16), (64, 8)]),
        ("podnet-resnet", 32, [(16, 32), (32, 16), (64, 8), (64, 8)]),
        ("lucir-resnet18", 224, [(64, 56), (128, 28), (256, 14), (512, 7)]),
        ("podnet-resnet18", 224, [(64, 112), (128, 56), (256, 28), (512, 14)]),
    ],
)
@torch.no_grad()
def test_map_shapes(name: str, side: int, shapes: list[tuple[int, int]]) -> None:
    net = build(name).eval()
    maps = net(images(1, side))
    assert [tuple(stage_map.shape) for stage_map in maps] == [(1, width, size, size) for width, size in shapes]
    assert net.features == shapes[-1][0]
    assert pool(maps[-1]).shape == (1, net.features)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 32])
@pytest.mark.parametrize("depth", [8, 14, 20])
@pytest.mark.parametrize("name", SMALL)
def test_small_relatives(name: str, depth: int, side: int, channels: int) -> None:
    net = build(name, depth, channels)
    maps = net(images(2, side, channels))
    assert [stage_map.shape[1] for stage_map in maps[:3]] == [16, 32, 64]
    assert [stage_map.shape[2] for stage_map in maps[:3]] == [side, side // 2, side // 4]
    assert maps[-1].shape[1:] == (64, side // 4, side // 4)
    assert sum(isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3) for module in net.modules()) == depth - 1
    pool(maps[-1]).square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("depth", [2, 7, 9, 18, 31])
@pytest.mark.parametrize("name", SMALL)
def test_impossible_depths(name: str, depth: int) -> None:
    with pytest.raises(ValueError, match=rf"depth must be 6n\+2 \(8, 14, 20, 32, ...\), not {depth}"):
        build(name, depth)


@pytest.mark.parametrize("name", sorted(DEPTHS))
def test_relu_placement(name: str) -> None:
    """LUCIR's maps are cut at zero in every stage but the last, PODNet's in none; pooled features are signed."""
    depth = 14 if name in SMALL else 18
    with torch.no_grad():
        maps = with_random_norms(build(name, depth))(images(4, 32))
    signed = [bool((stage_map < 0).any()) for stage_map in maps]
    cut = [False] * (len(maps) - 1) + [True] if name.startswith("lucir") else [True] * len(maps)
    assert signed == cut
    assert all((stage_map > 0).any() for stage_map in maps)
    features = pool(maps[-1])
    assert (features < 0).any()
    assert (features > 0).any()


@pytest.mark.parametrize("name", sorted(DEPTHS))
@torch.no_grad()
def test_relu_placement_within_stages(name: str) -> None:
    """Blocks that end with a ReLU."""
    net = with_random_norms(build(name, 20 if name in SMALL else 18))
    x = net.stem(images(4, 32))
    assert (x >= 0).all()
    endings = []
    for stage in net.stages:
        ends = []
        for block in stage:
            x = block(x)
            ends.append(bool((x >= 0).all()))
        endings.append(ends)
    assert (
        endings
        == {
            "lucir-resnet": [[True] * 3, [True] * 3, [True, True, False]],
            "podnet-resnet": [[False] * 3, [False] * 3, [False] * 2, [False]],
            "lucir-resnet18": [[True, True]] * 3 + [[True, False]],
            "podnet-resnet18": [[True, False]] * 4,
        }[name]
    )


@pytest.mark.parametrize("depth", [8, 14, 32])
@torch.no_grad()
def test_initial_podnet_is_its_stem(depth: int) -> None:
    """Strided, and padded with zero channels after the existing ones."""
    net, inputs = build("podnet-resnet", depth).eval().double(), images(2, 16).double()
    conv = next(module for module in net.modules() if isinstance(module, nn.Conv2d))
    stem = F.relu(F.conv2d(inputs, conv.weight, padding=1) / (1 + 1e-5) ** 0.5)  # fresh running statistics: 0 and 1
    expected = [
        stem,
        F.pad(stem[:, :, ::2, ::2], (0, 0, 0, 0, 0, 16)),
        F.pad(stem[:, :, ::4, ::4], (0, 0, 0, 0, 0, 48)),
    ]
    maps = net(inputs)
    for stage_map, expected_map in zip(maps, [*expected, expected[2]], strict=depth > 8):
        torch.testing.assert_close(stage_map, expected_map, rtol=1e-6, atol=1e-6)
        assert (stage_map >= 0).all()
    assert len(maps) == (3 if depth == 8 else 4)


@torch.no_grad()
def test_podnet_resnet18_starts_as_stem_and_shortcuts() -> None:
    net, inputs = build("podnet-resnet18").eval(), images(1, 32)
    x = F.max_pool2d(F.relu(F.conv2d(inputs, net.stem[0].weight, padding=1) / (1 + 1e-5) ** 0.5), 3, 2, padding=1)
    for number, (stage, stage_map) in enumerate(zip(net.stages, net(inputs), strict=True)):
        if number:
            x = F.conv2d(x, stage[0].shortcut[0].weight, stride=2) / (1 + 1e-5) ** 0.5
        x = F.relu(x)  # of the first block
        torch.testing.assert_close(stage_map, x, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_lucir_block_by_hand() -> None:
    """The block that opens stage 2: two 3×3 convolutions beside a strided 1×1 one with a norm of its own."""
    net = build("lucir-resnet", 8).eval()
    block, x = net.stages[1][0], images(2, 8, channels=16)
    convs = [module for module in block.modules() if isinstance(module, nn.Conv2d)]
    assert [(conv.kernel_size[0], conv.stride[0], conv.bias) for conv in convs] == [
        (3, 2, None),
        (3, 1, None),
        (1, 2, None),
    ]
    root = (1 + 1e-5) ** 0.5
    y = F.relu(F.conv2d(x, convs[0].weight, stride=2, padding=1) / root)
    y = F.conv2d(y, convs[1].weight, padding=1) / root + F.conv2d(x, convs[2].weight, stride=2) / root
    torch.testing.assert_close(block(x), F.relu(y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(DEPTHS))
def test_initial_weights(name: str) -> None:
    net = build(name)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            few = module.weight.numel() < 1000
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.2 if few else 0.06)
            assert module.bias is None
        if isinstance(module, nn.BatchNorm2d):
            assert (module.eps, module.momentum) == (1e-5, 0.1)
            assert not module.bias.any()
    last_norms = [block.bn2.weight for stage in net.stages for block in stage]
    norms = [module.weight for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    zero = [not weight.any() for weight in last_norms]
    assert all(zero) if name.startswith("podnet") else not any(zero)
    assert sum(bool((weight == 1).all()) for weight in norms) == len(norms) - sum(zero)


@pytest.mark.parametrize("name", sorted(DEPTHS))
def test_weights_come_from_the_generator_alone(name: str) -> None:
    depth = 8 if name in SMALL else 18
    torch.manual_seed(0)
    first = build(name, depth).state_dict()
    torch.manual_seed(99)
    same, other = build(name, depth).state_dict(), build(name, depth, seed=2).state_dict()
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not torch.equal(first["stem.0.weight"], other["stem.0.weight"])


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_layout_of_gradients(name: str) -> None:
    """Otherwise every layer would convert them."""
    network = BACKBONES[name](3, 14, torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    layouts = []

    def note(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        output.register_hook(lambda gradient: layouts.append(gradient.is_contiguous(memory_format=torch.channels_last)))

    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.BatchNorm2d):
            module.register_forward_hook(note)
    images = torch.randn(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    pool(network(images)[-1]).square().sum().backward()
    assert len(layouts) > 25
    assert all(layouts)
