"""Optimisers: torch's own, with a state of plain tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conftest import Silent, learner_for
from cscct.optim import OPTIMIZERS
from cscct.specs import Stage

STAGE = Stage(epochs=1, momentum=0.9, weight_decay=0.01)
REFERENCES = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.01),
}


def test_how_many_there_are() -> None:
    assert set(OPTIMIZERS) == set(REFERENCES)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_steps_are_those_of_torch_also_after_a_restart(name: str) -> None:
    gen = torch.Generator().manual_seed(1)
    ours = [nn.Parameter(torch.randn(shape, generator=gen)) for shape in ((3, 4), (), (2, 3, 2, 2))]
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    optimizer, reference = OPTIMIZERS[name](ours, STAGE), REFERENCES[name](theirs)
    for step in range(6):
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            one.grad = None if step == 0 and i == 1 else torch.randn(one.shape, generator=gen)
            other.grad = None if one.grad is None else one.grad.clone()
        optimizer.step(0.1)
        reference.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), step
        saved = [None if one is None else one.clone() for one in optimizer.state]
        optimizer = OPTIMIZERS[name](ours, STAGE, saved)
    optimizer.clear_gradients()
    assert all(one.grad is None for one in ours)


def test_the_setting_chooses() -> None:
    found = []
    for name in REFERENCES:
        sets = (f"train.optimizer={name}", "train.lr=0.01", "train.epochs=1", "data.train_per_class=30")
        learner = learner_for("replay", *sets)
        learner.learn(learner.stream.tasks[0], Silent())
        found.append(learner.network.head.weight.detach())
    assert found[0].isfinite().all()
    assert found[1].isfinite().all()
    assert not torch.equal(*found)
