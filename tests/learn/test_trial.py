"""Errors of backbones and heads are found before anything is written."""

from pathlib import Path

import pytest
import torch
from torch import nn

from conftest import learner_for, run_quietly
from cscct.errors import UserError
from cscct.learn.trial import try_parts
from cscct.nets import HEADS, Head

TINY = ("train.epochs=1", "data.train_per_class=4", "data.classes=4", "protocol.base=2")


class Mixing(Head):
    """A head that cannot widen: it has further weights of the size of the features."""

    def __init__(self, features: int, proxies_per_class: int = 1):
        super().__init__(features, proxies_per_class)
        self.mixing = nn.Parameter(torch.eye(features))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features @ self.mixing @ self.weight.T


@pytest.fixture(autouse=True)
def _heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "mixing", Mixing)
    monkeypatch.setitem(HEADS, "abstract", Head)


@pytest.mark.parametrize(
    ("head", "expand", "message"),
    [
        ("mixing", "extractor", r"head Mixing does not compute scores .* after it has grown \(RuntimeError"),
        ("abstract", "none", "head Head does not compute scores .*NotImplementedError"),
    ],
)
def test_heads_that_do_not_work(head: str, expand: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        run_quietly(tmp_path / "run", "der", *TINY, f"network.head={head}", f"network.expand={expand}")
    assert not list(tmp_path.iterdir())


def test_a_head_that_cannot_widen_may_be_used_without_growth() -> None:
    try_parts(learner_for("replay", *TINY, "network.head=mixing"))


@pytest.mark.parametrize("method", ["der", "ewc", "co2l", "lda"])
def test_the_learner_is_not_changed(method: str) -> None:
    learner = learner_for(method, *TINY)
    before = {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}
    try_parts(learner)
    after = learner.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not learner.extension.state
    assert learner.network.training
