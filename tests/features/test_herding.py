"""Herding."""

import numpy as np
import pytest
import torch

import oracles
from cscct.features import herd
from oracles import tensor, vector

FORMS = ("official", "icarl")


def slow_herd(features: np.ndarray, count: int, form: str) -> list[int]:
    return oracles.herd_official(features, count)[0] if form == "official" else oracles.herd_icarl(features, count)


def signs(n: int, seed: int) -> np.ndarray:
    """Return rows of ±1 in four dimensions with many duplicates.

    If n is a power of two, every sum is exact in binary, so ties are exact on any machine.
    """
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(n, 4))


def test_vectors_of_herding() -> None:
    features, m = tensor("herding/features"), vector("herding/m")
    assert herd(features, m) == vector("herding/order_code_repeat_allowed")
    assert herd(features, m, "icarl") == vector("herding/order_paper_no_repeat")
    assert herd(features, m)[:2] == herd(features, 2) == vector("herding/truncate_to_2")
    # The reference implementation also returns the raw picks, including the repeated one.
    assert oracles.herd_official(features.numpy(), m)[1] == vector("herding/raw_picks_code")
    assert herd(features, m) == list(dict.fromkeys(vector("herding/raw_picks_code")))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "d", "count"), [(1, 3, 1), (6, 2, 3), (30, 5, 10), (40, 16, 20), (60, 3, 15)])
def test_herd_matches_reference(n: int, d: int, count: int, form: str) -> None:
    for seed in range(3):
        features = np.random.default_rng([n, d, seed]).normal(size=(n, d)) + 0.5
        assert herd(torch.from_numpy(features), count, form) == slow_herd(features, count, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "count"), [(1, 5), (2, 2), (8, 4), (8, 8), (16, 20), (32, 16)])
def test_herd_with_duplicates_and_ties(n: int, count: int, form: str) -> None:
    for seed in range(4):
        features = signs(n, seed)
        ranks = herd(torch.from_numpy(features), count, form)
        assert ranks == slow_herd(features, count, form)
        assert len(set(ranks)) == len(ranks) <= min(n, count)
        if form == "icarl":
            assert len(ranks) == min(n, count)


@pytest.mark.parametrize("d", [4, 6, 64])
def test_herd_selects_the_first_of_equal_rows(d: int) -> None:
    """Equal rows must tie regardless of how the products are summed."""
    row = torch.from_numpy(np.random.default_rng(d).normal(size=(1, d)))
    for n in (2, 5, 7, 11, 50):
        assert herd(row.repeat(n, 1), 5) == [0]


@pytest.mark.parametrize("form", FORMS)
def test_herd_with_too_large_or_zero_count(form: str) -> None:
    features = torch.eye(4)
    assert sorted(herd(features, 99, form)) == [0, 1, 2, 3]
    for count in (0, -1):
        assert herd(features, count, form) == []
    assert herd(torch.empty(0, 4), 3, form) == []


@pytest.mark.parametrize(("n", "selected"), [(1024, [0, 1023]), (2048, [0])])
def test_herd_stops_after_a_thousand_picks(n: int, selected: list[int]) -> None:
    """All rows but the last are equal. The last one is picked after n/2 repetitions of the first."""
    features = torch.tensor([[1.0, 0.0]] * (n - 1) + [[0.0, 1.0]])
    assert herd(features, 2) == selected
    assert herd(features, 2, "icarl") == [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_herd_ignores_the_scale_of_the_features(form: str) -> None:
    features = np.random.default_rng(0).normal(size=(20, 4)) + 0.5
    stretched = features * np.linspace(0.1, 9, 20)[:, None]
    ranks = herd(torch.from_numpy(features), 8, form)
    assert herd(torch.from_numpy(stretched), 8, form) == ranks
    assert herd(torch.from_numpy(features), 5, form) == ranks[:5]
    assert herd(torch.from_numpy(features).float().requires_grad_(), 8, form) == ranks
    assert all(type(rank) is int for rank in ranks)


def test_herd_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"form must be official or icarl or random, not 'paper'"):
        herd(torch.eye(3), 1, "paper")
    with pytest.raises(ValueError, match=r"features must be a matrix \(samples, dimensions\), not \(3,\)"):
        herd(torch.ones(3), 1)
