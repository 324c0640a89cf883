"""torch.compile as a setting: the same learning, from the command line to the result."""

from __future__ import annotations

import shutil

import pytest
import torch

from conftest import Silent, learner_for
from cscct.errors import UserError

# Every batch of every pass has 20 images: one size is compiled once.
PER_CLASS = ("data.train_per_class=10", "data.test_per_class=10", "memory.per_class=10", "memory.herding=icarl")
SIZES = ("train.batch_size=20", "runtime.eval_batch_size=20", "data.classes=4", "protocol.base=2", "protocol.step=2")
QUICK = ("network.depth=8", "train.epochs=1", *PER_CLASS, *SIZES)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@needs_compiler
def test_compiled_networks_learn_what_plain_ones_learn() -> None:
    losses, features = {}, {}
    for setting in ("none", "all"):
        learner = learner_for("lucir+cscct", *QUICK, f"runtime.compile={setting}")
        listener = Silent()
        for task in learner.stream.tasks[:2]:
            learner.learn(task, listener)
        losses[setting] = torch.tensor([parts["cross_entropy"] for parts in listener.parts])
        features[setting] = learner.evaluate(task).features
        readers = (learner.network, learner.prepare(learner.network))
        assert {one.backbone._compiled_call_impl is not None for one in readers} == {setting == "all"}
    torch.testing.assert_close(losses["all"], losses["none"], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(features["all"], features["none"], atol=1e-2, rtol=1e-2)


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler, and no-such-compiler was not found"):
        learner_for("lucir", *QUICK, "runtime.compile=all")
    learner_for("lucir", *QUICK)  # nobody asked
