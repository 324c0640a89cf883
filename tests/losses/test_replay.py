"""Replay losses, which treat new samples and samples of the memory differently."""

import numpy as np
import pytest
import torch

import oracles
from cscct.losses import logit_replay, memory_cross_entropy, new_cross_entropy

LABELS = torch.tensor([0, 3, 1, 4, 2, 3, 0])
IS_NEW = LABELS >= 3
LOGITS = np.random.default_rng(1).normal(size=(7, 6))  # three old and three new classes; class 5 is not in the batch


def test_columns_of_new_samples() -> None:
    y, new = LABELS.numpy(), IS_NEW.numpy()
    for classes, columns in {"seen": [0, 1, 2, 3, 4, 5], "task": [3, 4, 5], "batch": [3, 4]}.items():

        def slow(logits: np.ndarray, columns: list[int] = columns) -> float:
            return oracles.cross_entropy(logits[new][:, columns], np.array([columns.index(label) for label in y[new]]))

        def fast(logits: torch.Tensor, classes: str = classes) -> torch.Tensor:
            return new_cross_entropy(logits, LABELS, IS_NEW, 3, classes)  # type: ignore[arg-type]

        oracles.compare(fast, slow, LOGITS)


def test_new_samples_give_no_gradient_to_old_columns() -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    new_cross_entropy(logits, LABELS, IS_NEW, 3).backward()
    assert torch.equal(logits.grad[:, :3], torch.zeros(7, 3, dtype=torch.float64))
    assert logits.grad[IS_NEW][:, 3:].abs().min() > 0


def test_samples_of_the_memory_use_all_columns() -> None:
    y, new = LABELS.numpy(), IS_NEW.numpy()
    oracles.compare(
        lambda logits: memory_cross_entropy(logits, LABELS, IS_NEW),
        lambda logits: oracles.cross_entropy(logits[~new], y[~new]),
        LOGITS,
    )
    oracles.compare(
        lambda logits: memory_cross_entropy(logits, LABELS, IS_NEW, 3, "seen"),
        lambda logits: oracles.weighted_cross_entropy(logits, y, new, 3),
        LOGITS,
    )


def test_seen_is_a_plain_mean_in_a_balanced_batch() -> None:
    logits, labels = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    value = memory_cross_entropy(logits, labels, labels == 2, 2, "seen")
    assert value.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item())


def test_only_stored_logits_are_compared() -> None:
    stored = np.random.default_rng(2).normal(size=(7, 4))
    stored[IS_NEW.numpy()] = np.nan
    stored[2, 2:] = np.nan
    oracles.compare(
        lambda logits: logit_replay(logits, torch.from_numpy(stored)),
        lambda logits: oracles.logit_replay(logits, stored),
        LOGITS,
    )


def test_connected_zero_without_samples_to_compare() -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    all_new = torch.ones(7, dtype=torch.bool)
    for value in (
        new_cross_entropy(logits, LABELS, ~all_new),
        new_cross_entropy(logits, LABELS, ~all_new, n_old=6),
        new_cross_entropy(logits, LABELS, ~all_new, classes="batch"),
        memory_cross_entropy(logits, LABELS, all_new),
        memory_cross_entropy(logits, LABELS, all_new, 3, "seen"),
        logit_replay(logits, torch.full((7, 2), torch.nan)),
    ):
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.item() == 0
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_invalid_arguments() -> None:
    logits = torch.tensor(LOGITS)
    with pytest.raises(ValueError, match="seen, task or batch"):
        new_cross_entropy(logits, LABELS, IS_NEW, 3, "all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="old or seen"):
        memory_cross_entropy(logits, LABELS, IS_NEW, 3, "all")  # type: ignore[arg-type]
    for n_old in (0, 6):
        with pytest.raises(ValueError, match=f"n_old must be between 1 and 5 if holds is seen, not {n_old}"):
            memory_cross_entropy(logits, LABELS, IS_NEW, n_old, "seen")
    with pytest.raises(ValueError, match="no more columns"):
        logit_replay(logits, torch.zeros(7, 9))
