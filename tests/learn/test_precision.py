"""Networks in 16 bits, losses in 32."""

import math

import pytest
import torch

from conftest import Silent, learner_for
from cscct.learn.device import FULL_PRECISION, precision_context

QUICK = ("train.epochs=6", "data.train_per_class=40", "data.test_per_class=20")


@pytest.mark.parametrize("base", ["icarl", "lucir", "podnet"])
def test_bf16_training(base: str) -> None:
    first_steps = {}
    for precision in ("32-true", "bf16-mixed"):
        more = ["finetune.epochs=2"] if base == "podnet" else []
        learner = learner_for(f"{base}+cscct", *QUICK, *more, f"runtime.precision={precision}")
        listener = Silent()
        for task in learner.stream.tasks[:2]:
            learner.learn(task, listener)
        assert {parameter.dtype for parameter in learner.network.parameters()} == {torch.float32}
        assert all(math.isfinite(record["loss"]) for record in listener.epochs)
        confusion = learner.evaluate(task).confusion["nme"]
        assert confusion.diagonal().sum() / confusion.sum() > 0.45  # of six classes; what it reaches differs widely
        assert learner.means.dtype == torch.float32
        first_steps[precision] = sum(listener.parts[0].values())
    # Later steps go their own ways, as they do with any other roundings.
    assert first_steps["bf16-mixed"] == pytest.approx(first_steps["32-true"], rel=0.05)
    assert first_steps["bf16-mixed"] != first_steps["32-true"]


def test_losses_see_at_least_32_bits() -> None:
    learner = learner_for("lucir+cscct", *QUICK, "runtime.precision=bf16-mixed")
    listener = Silent()
    learner.learn(learner.stream.tasks[0], listener)
    assert learner.evaluator.features(learner.stream.test_view, torch.arange(3)).dtype == torch.float32
    with learner.precision():
        output = learner.network(learner.stream.test_view.plain(torch.arange(3)))
    assert output.maps[0].dtype == torch.bfloat16  # so the setting does something


def test_full_precision_has_no_context() -> None:
    assert precision_context("32-true", torch.device("cpu")) is FULL_PRECISION
