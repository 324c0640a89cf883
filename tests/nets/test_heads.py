import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oracles
from cscct.nets import HEADS, CosineHead, Head, LinearHead, ProxyHead
from oracles import tensor, vector

KINDS = [("linear", 1), ("il2m", 1), ("positive", 1), ("cosine", 1), ("proxies", 1), ("proxies", 3)]
D = 5


def gen(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def grown(kind: str, rows: int, *sizes: int) -> Head:
    head = HEADS[kind](D, rows)
    for number, size in enumerate(sizes):
        head.grow(head.init_weights(size, gen(number)))
    return head


def features(k: int = 6) -> torch.Tensor:
    return torch.randn(k, D, generator=gen(9))


def test_all_heads_are_tested() -> None:
    assert set(HEADS) == {kind for kind, _ in KINDS}


@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_growing_keeps_old_rows_to_the_bit(kind: str, rows: int) -> None:
    head = grown(kind, rows, 3)
    with torch.no_grad():
        head.scale.mul_(2.5)
        if head.bias:
            head.new_bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
    before, scores = head.weight.detach().clone(), head(features()).detach()
    new_rows = head.init_weights(2, gen(5))
    head.grow(new_rows)
    assert head.classes == 5
    assert torch.equal(head.old_weight, before)
    assert torch.equal(head.new_weight, new_rows)
    assert torch.equal(head.weight, torch.cat([before, new_rows]))
    assert head.scale.item() == 2.5
    after = head(features())
    assert after.shape == (6, 5)
    torch.testing.assert_close(after[:, :3], scores, rtol=1e-6, atol=1e-6)
    head.grow(head.init_weights(1, gen(6)))  # rows of two tasks are old now
    assert torch.equal(head.old_weight, torch.cat([before, new_rows]))
    assert head(features()).shape == (6, 6)


@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_old_and_new_rows_share_no_memory(kind: str, rows: int) -> None:
    head = grown(kind, rows, 3)
    new_rows, previous = head.init_weights(2, gen(5)), head.new_weight
    head.grow(new_rows)
    tensors = [head.old_weight, head.new_weight, new_rows, previous]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 4
    assert {name for name, _ in head.named_parameters()} >= {"old_weight", "new_weight"}
    assert all(parameter.is_leaf for parameter in head.parameters())


@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_frozen_old_rows_keep_their_bits(kind: str, rows: int) -> None:
    """Through steps with momentum and weight decay, which would move even a row without a gradient."""
    head = grown(kind, rows, 3, 2)
    old = {name: parameter.detach().clone() for name, parameter in head.named_parameters() if name.startswith("old")}
    new = head.new_weight.detach().clone()
    optimiser = torch.optim.SGD(head.trainable(old=False, scale=True), lr=0.5, momentum=0.9, weight_decay=0.1)
    for _ in range(4):
        optimiser.zero_grad()
        F.cross_entropy(head(features()) * head.scale, torch.arange(6) % 5).backward()
        optimiser.step()
    now = dict(head.named_parameters())
    assert old
    for name, before in old.items():
        assert torch.equal(now[name], before)
        assert now[name].grad is None
    assert not torch.equal(head.new_weight, new)
    assert head.scale.item() != 1 or not head.has_scale


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_trainable(kind: str, rows: int, old: bool, scale: bool) -> None:
    head = grown(kind, rows, 3, 2)
    names = {"new_weight"} | ({"new_bias"} if head.bias else set())
    if old:
        names |= {name.replace("new", "old") for name in names}
    if scale and head.has_scale:
        names.add("scale")
    parameters = dict(head.named_parameters())
    for _ in range(2):  # asking again, after asking for something else, gives the same
        selected = head.trainable(old=old, scale=scale)
        assert {name for name, parameter in parameters.items() if any(parameter is kept for kept in selected)} == names
        assert len(selected) == len(names)
        assert {name for name, parameter in parameters.items() if parameter.requires_grad} == names
        head.trainable(old=not old, scale=not scale)


def test_linear() -> None:
    head = grown("linear", 1, 2, 3)
    assert isinstance(head, LinearHead)
    assert torch.equal(head.old_bias, torch.zeros(2))
    assert torch.equal(head.new_bias, torch.zeros(3))
    with torch.no_grad():
        head.old_bias.copy_(torch.tensor([1.0, 2.0]))
        head.new_bias.copy_(torch.tensor([3.0, 4.0, 5.0]))
    x = features()
    torch.testing.assert_close(head(x), x @ head.weight.T + torch.arange(1.0, 6.0))
    head.grow(head.init_weights(1, gen()))
    assert head.old_bias.tolist() == [1, 2, 3, 4, 5]
    assert head.new_bias.tolist() == [0]
    assert head.scale.item() == 1
    assert "scale" not in dict(head.named_parameters())
    assert "scale" in head.state_dict()


@pytest.mark.parametrize("kind", ["cosine", "proxies"])
def test_lengths_do_not_matter(kind: str) -> None:
    head, x = grown(kind, 1, 4), features()
    scores = head(x)
    with torch.no_grad():
        head.new_weight.mul_(torch.tensor([[0.1], [3.0], [7.0], [20.0]]))
    torch.testing.assert_close(head(3.7 * x), scores)


def test_vectors_of_cosine() -> None:
    head = CosineHead(4).double()
    weight = tensor("shared_inputs/classifier_weight")
    head.grow(weight[:3])
    head.grow(weight[3:])
    scores = head(tensor("shared_inputs/cur"))
    torch.testing.assert_close(scores.detach(), tensor("lucir/logits_before_scale"), atol=1e-6, rtol=0)
    with torch.no_grad():
        head.scale.fill_(vector("shared_inputs/sigma"))
    logits = scores * head.scale
    torch.testing.assert_close(logits.detach(), tensor("lucir/logits"), atol=1e-6, rtol=0)


def test_vectors_of_proxies() -> None:
    x, proxies, per_class = tensor("lsc_nca/features"), tensor("lsc_nca/proxies"), vector("lsc_nca/proxies_per_class")
    head = ProxyHead(4, per_class).double()
    head.grow(proxies)
    assert head.classes == 3
    torch.testing.assert_close(head(x).detach(), tensor("lsc_nca/similarities"), atol=1e-6, rtol=0)
    assert head(x).argmax(dim=1).tolist() == vector("lsc_nca/predictions")
    single = ProxyHead(4, 1).double()  # one proxy a class: its score is the raw similarity
    single.grow(proxies)
    torch.testing.assert_close(single(x).detach(), tensor("lsc_nca/raw_similarities"), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("k", "classes", "rows"), [(1, 1, 1), (4, 3, 2), (3, 2, 10)])
def test_proxies_reference_implementation(k: int, classes: int, rows: int) -> None:
    rng = np.random.default_rng([k, classes, rows])
    x, proxies = rng.normal(size=(k, 4)), rng.normal(size=(classes * rows, 4))
    head = ProxyHead(4, rows).double()
    head.grow(torch.from_numpy(proxies))
    np.testing.assert_allclose(head(torch.from_numpy(x)).detach(), oracles.lsc(x, proxies, rows), atol=1e-10)


@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_init_weights(kind: str, rows: int) -> None:
    head = HEADS[kind](64, rows)
    weights = head.init_weights(40, gen())
    assert weights.shape == (40 * rows, 64)
    assert torch.equal(weights, head.init_weights(40, gen()))
    assert not torch.equal(weights, head.init_weights(40, gen(2)))
    bound = 64**-0.5
    if kind != "cosine":  # normal, fan in, linear gain
        assert weights.std().item() == pytest.approx(bound, rel=0.1)
        assert weights.abs().max() > 2 * bound
    else:  # uniform
        assert weights.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert weights.abs().max() <= bound


def test_constrain() -> None:
    for kind, rows in KINDS:
        head = grown(kind, rows, 3, 2)
        before = head.weight.detach().clone()
        head.constrain()
        expected = before.clamp(min=0) if kind == "positive" else before
        assert torch.equal(head.weight, expected)
    head = grown("positive", 1, 3, 2)
    torch.testing.assert_close(head(features()), features() @ head.weight.T)
