"""Training with torch.compile."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from conftest import Silent, learner_for, settings_for
from cscct.errors import UserError
from cscct.learn.device import require_compiler
from cscct.learn.learner import Learner

# Every batch of every pass has 20 images: one size is compiled once.
PER_CLASS = ("data.train_per_class=10", "data.test_per_class=10", "memory.per_class=10", "memory.herding=icarl")
SIZES = ("train.batch_size=20", "runtime.eval_batch_size=20", "data.classes=6", "protocol.base=2", "protocol.step=2")
QUICK = ("network.depth=8", "train.epochs=1", *PER_CLASS, *SIZES)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@needs_compiler
def test_compiled_network_gives_the_same_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of the C++ compiler. Not from torch's common cache, which may hold code for another processor."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    features = {}
    for setting in ("none", "frozen"):
        learner = learner_for("lucir+cscct", *QUICK, f"runtime.compile={setting}")
        learner.learn(learner.stream.tasks[0], Silent())
        assert learner.network.backbone._compiled_call_impl is None
        assert (learner.prepare(learner.network).backbone._compiled_call_impl is not None) == (setting == "frozen")
        features[setting] = learner.evaluate(learner.stream.tasks[0]).features
    torch.testing.assert_close(features["frozen"], features["none"], atol=1e-3, rtol=1e-3)


@needs_compiler
def test_compiled_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same graphs, forward and backward, but without translating them to C++, which takes most of the time."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    counters.clear()
    losses, features = {}, {}
    for setting in ("none", "all"):
        learner = learner_for("lucir+cscct", *QUICK, f"runtime.compile={setting}")
        listener = Silent()
        graphs = []
        for task in learner.stream.tasks:
            learner.learn(task, listener)
            graphs.append(counters["stats"]["unique_graphs"])
        losses[setting] = torch.tensor([parts["cross_entropy"] for parts in listener.parts])
        features[setting] = learner.evaluate(task).features
        assert len(graphs) == 3
        assert graphs[1] == graphs[2]  # nothing is compiled anew for a later task
        assert (graphs[0] > 0) == (setting == "all")
        readers = (learner.network, learner.prepare(learner.network))
        assert {one.backbone._compiled_call_impl is not None for one in readers} == {setting == "all"}
    torch.testing.assert_close(losses["all"], losses["none"], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(features["all"], features["none"], atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(("setting", "mode"), [("all", None), ("cuda-graphs", "reduce-overhead")])
def test_cuda_graphs_are_used_for_the_trained_network_only(
    setting: str, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[dict[str, object]] = []

    def record(function: object, **options: object) -> object:
        compiled.append({key: value for key, value in options.items() if value is not None})
        return function

    built = learner_for("lucir+cscct", *QUICK)
    monkeypatch.setattr(torch, "compile", record)
    config = replace(built.config, compile=setting)
    learner = Learner(built.network, built.memory, config, built.stream, torch.device("cpu"))
    assert compiled == [{"mode": mode} if mode else {}]
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
    assert len(compiled) > 2  # teacher and evaluation, without CUDA graphs
    assert compiled[1:] == [{}] * (len(compiled) - 1)


def test_cuda_graphs_need_cuda() -> None:
    require_compiler("cuda-graphs", torch.device("cuda"))
    with pytest.raises(UserError, match="cuda-graphs needs a CUDA GPU, and this run uses cpu"):
        learner_for("lucir", *QUICK, "numerics.compile=cuda-graphs", "runtime.device=cpu")


@pytest.mark.parametrize("setting", ["all", "cuda-graphs"])
def test_compiled_training_needs_extensions_with_one_backward_pass(setting: str) -> None:
    settings_for("ewc", "digits", f"numerics.compile={setting}")
    settings_for("a-gem", "digits", "numerics.compile=frozen")
    with pytest.raises(UserError, match=f"the extension a-gem computes the gradients itself, .*{setting} does not"):
        settings_for("a-gem", "digits", f"numerics.compile={setting}")
