import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oracles
from cscct.memory import Memory, class_mean, herd, nearest_mean
from cscct.specs import MemorySpec
from oracles import array, tensor, vector

FORMS = ("official", "icarl")


def slow(features: np.ndarray, count: int, form: str) -> list[int]:
    return oracles.herd_official(features, count)[0] if form == "official" else oracles.herd_icarl(features, count)


def signs(n: int, seed: int) -> np.ndarray:
    """Rows of ±1 in four dimensions, many of them equal. With n a power of two every sum is exact in binary, so that
    ties are ties on any machine."""
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(n, 4))


def test_vectors_of_herding() -> None:
    features, m = tensor("herding/features"), vector("herding/m")
    assert herd(features, m) == vector("herding/order_code_repeat_allowed")
    assert herd(features, m, "icarl") == vector("herding/order_paper_no_repeat")
    assert herd(features, m)[:2] == herd(features, 2) == vector("herding/truncate_to_2")
    # The picks on the way, the repeated one included, are the slow version's to tell.
    assert oracles.herd_official(features.numpy(), m)[1] == vector("herding/raw_picks_code")
    assert herd(features, m) == list(dict.fromkeys(vector("herding/raw_picks_code")))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "d", "count"), [(1, 3, 1), (6, 2, 3), (30, 5, 10), (40, 16, 20), (60, 3, 15)])
def test_herd_slow_version(n: int, d: int, count: int, form: str) -> None:
    for seed in range(3):
        features = np.random.default_rng([n, d, seed]).normal(size=(n, d)) + 0.5
        assert herd(torch.from_numpy(features), count, form) == slow(features, count, form)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "count"), [(1, 5), (2, 2), (8, 4), (8, 8), (16, 20), (32, 16)])
def test_herd_with_duplicates_and_ties(n: int, count: int, form: str) -> None:
    for seed in range(4):
        features = signs(n, seed)
        ranks = herd(torch.from_numpy(features), count, form)  # type: ignore[arg-type]
        assert ranks == slow(features, count, form)
        assert len(set(ranks)) == len(ranks) <= min(n, count)
        if form == "icarl":
            assert len(ranks) == min(n, count)


@pytest.mark.parametrize("d", [4, 6, 64])
def test_herd_takes_the_first_of_equal_rows(d: int) -> None:
    """However the products are summed: equal rows must tie."""
    row = torch.from_numpy(np.random.default_rng(d).normal(size=(1, d)))
    for n in (2, 5, 7, 11, 50):
        assert herd(row.repeat(n, 1), 5) == [0]


@pytest.mark.parametrize("form", FORMS)
def test_herd_asks_for_too_much_or_nothing(form: str) -> None:
    features = torch.eye(4)
    assert sorted(herd(features, 99, form)) == [0, 1, 2, 3]  # type: ignore[arg-type]
    for count in (0, -1):
        assert herd(features, count, form) == []  # type: ignore[arg-type]
    assert herd(torch.empty(0, 4), 3, form) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "found"), [(1024, [0, 1023]), (2048, [0])])
def test_herd_stops_after_a_thousand_picks(n: int, found: list[int]) -> None:
    """All rows alike but the last: it is picked after n/2 repetitions of the first, if there is time."""
    features = torch.tensor([[1.0, 0.0]] * (n - 1) + [[0.0, 1.0]])
    assert herd(features, 2) == found
    assert herd(features, 2, "icarl") == [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_herd_looks_at_directions(form: str) -> None:
    features = np.random.default_rng(0).normal(size=(20, 4)) + 0.5
    stretched = features * np.linspace(0.1, 9, 20)[:, None]
    ranks = herd(torch.from_numpy(features), 8, form)  # type: ignore[arg-type]
    assert herd(torch.from_numpy(stretched), 8, form) == ranks  # type: ignore[arg-type]
    assert herd(torch.from_numpy(features), 5, form) == ranks[:5]  # type: ignore[arg-type]
    assert herd(torch.from_numpy(features).float().requires_grad_(), 8, form) == ranks  # type: ignore[arg-type]
    assert all(type(rank) is int for rank in ranks)


def test_herd_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"form must be official or icarl, not 'paper'"):
        herd(torch.eye(3), 1, "paper")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"features must be a matrix \(samples, dimensions\), not \(3,\)"):
        herd(torch.ones(3), 1)


def test_memory_keeps_ranks_when_it_shrinks() -> None:
    memory = Memory(MemorySpec(policy="total", total=12))
    features = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 4)) + 0.5)
    indices = list(range(100, 130))
    for label in (0, 1):
        memory.keep(label, indices, features, classes_seen=2)
    ranked = [indices[rank] for rank in slow(features.numpy(), 6, "official")]
    assert memory.exemplars == {0: ranked, 1: ranked}
    for seen, left in ((3, 4), (5, 2), (12, 1), (100, 1)):
        memory.shrink(seen)
        assert memory.exemplars == {0: ranked[:left], 1: ranked[:left]}
    memory.shrink(2)  # what is gone stays gone
    assert memory.exemplars == {0: ranked[:1], 1: ranked[:1]}


@pytest.mark.parametrize("form", FORMS)
def test_memory_grows_by_class(form: str) -> None:
    memory = Memory(MemorySpec(per_class=3, herding=form))  # type: ignore[arg-type]
    for label, n in enumerate((10, 2)):
        features = np.random.default_rng(label).normal(size=(n, 4)) + 0.5
        indices = list(range(50 * label, 50 * label + n))
        memory.keep(label, indices, torch.from_numpy(features), classes_seen=99)
        assert memory.exemplars[label] == [indices[rank] for rank in slow(features, 3, form)]
    before = dict(memory.exemplars)
    memory.shrink(99)
    assert memory.exemplars == before


def means_of_the_vectors() -> torch.Tensor:
    plain, flipped = vector("nme/exemplar_features"), vector("nme/flipped_features")
    both = [
        (torch.tensor(plain[c], dtype=torch.float64), torch.tensor(flipped[c], dtype=torch.float64))
        for c in sorted(plain)
    ]
    return torch.stack([class_mean(one, other) for one, other in both])


def test_vectors_of_means() -> None:
    means, queries = means_of_the_vectors(), tensor("nme/test_features")
    torch.testing.assert_close(means, tensor("nme/class_means"), atol=1e-6, rtol=0)
    assert nearest_mean(queries, means).tolist() == vector("nme/predictions")
    assert nearest_mean(7 * queries, means).tolist() == vector("nme/predictions")
    squares = torch.cdist(F.normalize(queries, dim=1), means).square()
    torch.testing.assert_close(squares, tensor("nme/sqdist_normalised"), atol=1e-6, rtol=0)
    assert array("nme/sqdist_normalised").argmin(axis=1).tolist() == vector("nme/predictions")


@pytest.mark.parametrize(("n", "second"), [(1, False), (1, True), (6, False), (6, True)])
def test_class_mean_slow_version(n: int, second: bool) -> None:
    features, varied = np.random.default_rng(n).normal(size=(2, n, 5))
    given = class_mean(torch.from_numpy(features), torch.from_numpy(varied) if second else None)
    np.testing.assert_allclose(given, oracles.class_mean(features, varied if second else None), atol=1e-12)
    assert given.norm().item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("k", "classes"), [(1, 1), (5, 3), (60, 40)])
def test_nearest_mean_slow_version(k: int, classes: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng([k, classes])
    features, means = rng.normal(size=(k, 5)), oracles.units(rng.normal(size=(classes, 5)))
    expected = oracles.squared_distances(features, means).argmin(axis=1)
    assert (
        nearest_mean(torch.from_numpy(features).to(dtype), torch.from_numpy(means).to(dtype)).tolist()
        == expected.tolist()
    )
