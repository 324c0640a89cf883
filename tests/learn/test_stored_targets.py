"""Targets stored with exemplars, and their restoration."""

import copy
from typing import Any

import pytest
import torch

from conftest import Silent, learner_for
from cscct.data.batches import join
from cscct.learn.learner import Learner, Resume
from cscct.learn.loop import StagePosition
from cscct.learn.state import restore_state, state_tensors
from cscct.memory import STORED_TARGETS, pad_stored

SMALL = ("train.epochs=2", "data.train_per_class=24", "data.classes=6", "protocol.base=2", "runtime.eval_batch_size=7")


def learned(method: str, tasks: int, *sets: str) -> Learner:
    learner = learner_for(method, *SMALL, *sets)
    for task in learner.stream.tasks[:tasks]:
        learner.learn(task, Silent())
    return learner


def test_stored_logits() -> None:
    learner = learned("der++", 1)
    view = learner.stream.train_view
    expected = {
        label: learner.prepare(learner.network)(view.plain(torch.tensor(ranked))).logits.detach()
        for label, ranked in learner.memory.exemplars.items()
    }
    for label, rows in learner.memory.stored.items():
        torch.testing.assert_close(rows, expected[label], rtol=1e-4, atol=1e-4)
    first = {label: rows.clone() for label, rows in learner.memory.stored.items()}
    learner.learn(learner.stream.tasks[1], Silent())
    assert [rows.shape[1] for rows in learner.memory.stored.values()] == [2, 2, 4, 4]
    assert all(torch.equal(learner.memory.stored[label], rows) for label, rows in first.items())  # kept as stored


def test_stored_targets_shrink_with_the_exemplars() -> None:
    learner = learner_for("replay", *SMALL, "memory.policy=total", "memory.total=12", "memory.store=features")
    for task in learner.stream.tasks[:3]:
        learner.learn(task, Silent())
        for label, ranked in learner.memory.exemplars.items():
            assert len(learner.memory.stored[label]) == len(ranked) <= 12 // task.n_seen


def test_rows_of_different_lengths_make_one_matrix_beside_new_samples() -> None:
    stored = {0: torch.ones(2, 3), 1: torch.full((1, 4), 2.0)}
    exemplars = [(0, [5, 6]), (1, [7]), (2, [8])]
    padded = pad_stored(stored, exemplars)
    assert padded is not None
    assert padded.nan_to_num(-1).tolist() == [[1, 1, 1, -1], [1, 1, 1, -1], [2, 2, 2, 2], [-1, -1, -1, -1]]
    pool = join([(3, [9, 10])], exemplars, padded)
    assert pool.stored is not None
    assert pool.stored.isnan().all(dim=1).tolist() == [True, True, False, False, False, True]
    assert pad_stored({}, exemplars) is None
    assert set(STORED_TARGETS) == {"logits", "features"}


@pytest.mark.parametrize("method", ["der+++cscct", "bic+cscct", "wa"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_learner_that_is_restored_ends_with_the_same_bits(method: str, optimizer: str) -> None:
    sets = (f"train.optimizer={optimizer}", "train.lr=0.01")
    whole = learned(method, 1, *sets)
    second = whole.stream.tasks[1]
    saved: list[Any] = []

    def keep(stage: str, position: StagePosition, state: Any) -> None:
        if position.epoch == 1 and not saved:
            tensors = {name: tensor.clone() for name, tensor in state_tensors(whole).items()}
            exemplars = {label: list(ranked) for label, ranked in whole.memory.exemplars.items()}
            place = StagePosition(position.epoch, position.step, position.images, dict(position.sums))
            saved.append((tensors, exemplars, Resume(stage, place, copy.deepcopy(state()))))

    whole.learn(second, Silent(), on_step=keep)
    tensors, exemplars, resume = saved[0]
    other = learner_for(method, *SMALL, *sets)
    restore_state(other, tensors, exemplars)
    other.learn(second, Silent(), resume=resume)
    third = whole.stream.tasks[2]
    for learner in (whole, other):
        learner.learn(third, Silent())
    assert whole.memory.exemplars == other.memory.exemplars
    expected, found = state_tensors(whole), state_tensors(other)
    assert expected.keys() == found.keys()
    assert any(name.startswith("stored.") for name in found) == method.startswith("der")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
