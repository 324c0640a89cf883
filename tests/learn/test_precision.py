"""Networks in 16 bits, losses in 32."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

from conftest import Silent, learner_for, settings_for
from cscct.errors import UserError
from cscct.learn import device
from cscct.learn.device import FULL_PRECISION, precision_context, require_scaling
from cscct.learn.loop import OptimizerState, StagePosition
from cscct.learn.state import first_task_tensors
from cscct.methods import Extension, TaskContext
from cscct.methods.ewc import EWC

QUICK = ("train.epochs=6", "data.train_per_class=40", "data.test_per_class=20")


@pytest.mark.parametrize(
    ("base", "mixed"),
    [("icarl", "bf16-mixed"), ("lucir", "bf16-mixed"), ("podnet", "bf16-mixed"), ("lucir", "fp16-mixed")],
)
def test_training_in_16_bits(base: str, mixed: str) -> None:
    first_steps = {}
    for precision in ("32-true", mixed):
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
    assert first_steps[mixed] == pytest.approx(first_steps["32-true"], rel=0.05)
    assert first_steps[mixed] != first_steps["32-true"]


@pytest.mark.parametrize(("mixed", "dtype"), [("bf16-mixed", torch.bfloat16), ("fp16-mixed", torch.float16)])
def test_losses_see_at_least_32_bits(mixed: str, dtype: torch.dtype) -> None:
    learner = learner_for("lucir+cscct", *QUICK, f"runtime.precision={mixed}")
    listener = Silent()
    learner.learn(learner.stream.tasks[0], listener)
    assert learner.evaluator.features(learner.stream.test_view, torch.arange(3)).dtype == torch.float32
    with learner.precision():
        output = learner.network(learner.stream.test_view.plain(torch.arange(3)))
    assert output.maps[0].dtype == dtype  # so the setting does something


def test_full_precision_has_no_context() -> None:
    assert precision_context("32-true", torch.device("cpu")) is FULL_PRECISION


ONE_EPOCH = ("train.epochs=1", "data.train_per_class=40", "data.test_per_class=20")


@dataclass(frozen=True)
class LargestGradients(Extension):
    """The largest gradient of each step."""

    name = "largest_gradients"
    scaled_losses = True

    def after_step(self, context: TaskContext) -> None:
        gradients = [p.grad.abs().max() for p in context.network.backbone.parameters() if p.grad is not None]
        self.state[f"step{len(self.state)}"] = torch.stack(gradients).max()


def largest_gradients(*sets: str) -> list[float]:
    """Return the largest gradient of each step of the first task."""
    learner = learner_for("finetune", *ONE_EPOCH, *sets)
    learner.extension = LargestGradients()
    learner.learn(learner.stream.tasks[0], Silent())
    return [value.item() for value in learner.extension.state.values()]


def test_gradients_are_clipped_after_the_scale_of_the_losses_is_removed() -> None:
    expected = largest_gradients("numerics.precision=32-true")
    assert largest_gradients("numerics.precision=fp16-mixed")[0] == pytest.approx(expected[0], rel=0.05)
    clip = expected[0] / 4
    clipped = largest_gradients("numerics.precision=fp16-mixed", f"train.clip_grad_value={clip}")
    assert clipped[0] == pytest.approx(clip)


def test_steps_whose_gradients_are_not_finite_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that is too large for float16 is halved until gradients are finite. The recorded losses have no scale."""
    monkeypatch.setattr(device, "INITIAL_SCALE", 2.0**40)
    learner = learner_for("finetune", *ONE_EPOCH, "train.batch_size=4", "numerics.precision=fp16-mixed")
    listener, states, weights = Silent(), [], []

    def on_step(stage: str, position: StagePosition, optimizer: Callable[[], OptimizerState]) -> None:
        states.append(optimizer()["scaler"]["scale"])
        weights.append(learner.network.head.weight.detach().clone())

    learner.learn(learner.stream.tasks[0], listener, on_step=on_step)
    skipped = sum(later == earlier / 2 for earlier, later in pairwise([2.0**40, *states]))
    assert states[0] == 2.0**39
    assert 5 < skipped < len(states)
    assert sum(torch.equal(a, b) for a, b in pairwise(weights)) == skipped - 1
    assert 1 < listener.parts[0]["cross_entropy"] < 5


@pytest.mark.parametrize("method", ["a-gem", "ewc"])
def test_extensions_compute_the_same_gradients_from_scaled_losses(method: str) -> None:
    """The weights change alike in the first steps of the second task, from the same weights."""
    first, changes = {}, {}
    for precision in ("32-true", "fp16-mixed"):
        learner = learner_for(method, *ONE_EPOCH, f"numerics.precision={precision}")
        learner.learn(learner.stream.tasks[0], Silent(), ready=first or None)
        first = first or {name: tensor.clone() for name, tensor in first_task_tensors(learner).items()}
        learner.learn(learner.stream.tasks[1], Silent())
        moved = [
            parameter.detach() - first["backbone." + name]
            for name, parameter in learner.network.backbone.named_parameters()
        ]
        changes[precision] = torch.cat([change.flatten() for change in moved])
    difference = (changes["fp16-mixed"] - changes["32-true"]).norm() / changes["32-true"].norm()
    assert 0 < difference < 0.3


@pytest.mark.parametrize("stated", [True, False])
def test_extensions_that_read_gradients_must_support_scaled_losses(
    stated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LargestGradients, "scaled_losses", stated)
    assert LargestGradients().accepts_scaled_losses() == stated
    assert EWC().accepts_scaled_losses()
    with pytest.raises(UserError, match="the extension si does not support scaled losses"):
        settings_for("si", "digits", "numerics.precision=fp16-mixed")
    with pytest.raises(UserError, match=r"train\.optimizer_options\.fused does not support scaled losses"):
        settings_for("lucir", "digits", "numerics.precision=fp16-mixed", "train.optimizer_options.fused=true")


def test_scaled_losses_need_a_cpu_or_cuda() -> None:
    require_scaling("fp16-mixed", torch.device("cuda"))
    require_scaling("bf16-mixed", torch.device("mps"))
    with pytest.raises(UserError, match="fp16-mixed is not available on mps"):
        require_scaling("fp16-mixed", torch.device("mps"))
