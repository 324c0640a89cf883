"""Optimisers: the classes of `torch.optim` by name, their options, and their state in checkpoints."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from conftest import Silent, learner_for
from cscct.errors import UserError
from cscct.optim import (
    OPTIMIZERS,
    TORCH_OPTIMIZERS,
    UNSUPPORTED,
    build_optimizer,
    option_names,
    pack_state,
    register_optimizer,
    unpack_state,
)
from cscct.specs import Stage
from cscct.storage import plain_tensors

SMALL = ("train.lr=0.01", "train.epochs=1", "data.train_per_class=30")


class Drift(torch.optim.Optimizer):
    """Gradient descent with state of every kind that a checkpoint holds."""

    def __init__(self, params: Any, lr: float = 0.1, *, history: Any = ()):
        super().__init__(params, {"lr": lr, "history": history, "best": None})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["steps"] = state.get("steps", 0) + 1
                state["traces"] = [*state.get("traces", []), parameter.grad.clone()][-2:]
                parameter.data.sub_(sum(state["traces"]), alpha=group["lr"] / state["steps"])
                group["history"] = (*group["history"], state["steps"])[-3:]


@pytest.fixture
def drift() -> Iterator[None]:
    register_optimizer("Drift")(Drift)
    yield
    del OPTIMIZERS["drift"]


def test_every_class_of_torch_is_supported_or_known_to_be_unsuitable() -> None:
    names = {value.__name__ for value in vars(torch.optim).values() if isinstance(value, type)} - {"Optimizer"}
    assert set(TORCH_OPTIMIZERS) <= names
    assert {name.lower() for name in names} <= {*OPTIMIZERS, *UNSUPPORTED}
    assert not {*OPTIMIZERS} & {*UNSUPPORTED}


def parameters() -> list[nn.Parameter]:
    """A matrix, a scalar and a convolution's weight in channels_last layout."""
    gen = torch.Generator().manual_seed(1)
    matrix, scalar, kernel = (torch.randn(shape, generator=gen) for shape in ((3, 4), (), (2, 3, 2, 2)))
    return [nn.Parameter(tensor) for tensor in (matrix, scalar, kernel.to(memory_format=torch.channels_last))]


def set_gradients(parameters: list[nn.Parameter], step: int) -> None:
    """Gradients in the layout of the parameters; the scalar gets none in the first step."""
    gen = torch.Generator().manual_seed(step)
    for parameter in parameters:
        gradient = torch.empty_like(parameter).copy_(torch.randn(parameter.shape, generator=gen))
        parameter.grad = None if step == 0 and parameter.dim() == 0 else gradient


def through_files(state: dict[str, Any]) -> Any:
    """A `state_dict` written as a checkpoint writes it, and read again."""
    tensors: dict[str, Tensor] = {}
    text, blob = json.dumps(pack_state(state, tensors)), save(plain_tensors(tensors))
    return unpack_state(json.loads(text), load(blob))


def same(value: Any, expected: Any) -> bool:
    """Whether two nested values have the same types, bits and strides."""
    if isinstance(expected, Tensor):
        return torch.equal(value, expected) and value.stride() == expected.stride() and value.dtype == expected.dtype
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same(value[key], item) for key, item in expected.items())
    if isinstance(expected, list | tuple):
        return type(value) is type(expected) and all(map(same, value, expected)) and len(value) == len(expected)
    return type(value) is type(expected) and value == expected


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in TORCH_OPTIMIZERS),
    ("SGD", {"nesterov": True}),
    ("Adam", {"amsgrad": True, "betas": (0.8, 0.9)}),
    ("RMSprop", {"centered": True, "alpha": 0.9}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_steps_are_those_of_torch_also_after_every_restart(name: str, options: dict[str, Any]) -> None:
    stage = Stage(epochs=1, optimizer=name.lower(), optimizer_options=options, lr=0.1, momentum=0.7, weight_decay=0.01)
    settings = {"momentum": 0.7} if name in ("SGD", "RMSprop") else {}
    if name != "Rprop":
        settings["weight_decay"] = 0.01
    trained, expected = parameters(), parameters()
    optimizer = build_optimizer(trained, stage)
    reference = getattr(torch.optim, name)(expected, lr=0.1, **settings, **options)
    for step in range(5):
        for tensors, steps in ((trained, optimizer), (expected, reference)):
            set_gradients(tensors, step)
            steps.step()
        assert all(map(torch.equal, trained, expected)), step
        state = optimizer.state_dict()
        optimizer = build_optimizer(trained, stage)
        optimizer.load_state_dict(through_files(state))
        assert same(optimizer.state_dict(), reference.state_dict()), step


def test_state_of_a_registered_optimiser_is_restored(drift: None) -> None:
    trained = parameters()[::2]
    optimizer = build_optimizer(trained, Stage(epochs=1, optimizer="drift", optimizer_options={"history": (0,)}))
    for step in range(3):
        set_gradients(trained, step)
        optimizer.step()
    state = optimizer.state_dict()
    assert state["param_groups"][0]["history"] == (2, 3, 3)
    assert len(state["state"][0]["traces"]) == 2
    assert same(through_files(state), state)


@pytest.mark.parametrize(("value", "kind"), [({1}, "set"), ({(1, 2): 3}, "dict"), (1j, "complex")])
def test_state_that_is_not_json(value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"optimizer\.state\.0\.seen is of type {kind}"):
        pack_state({"state": {0: {"seen": value}}}, {})


def test_options_are_the_arguments_without_settings_of_their_own(drift: None) -> None:
    assert option_names("drift") == ["history"]
    assert {"nesterov", "dampening"} <= set(option_names("sgd"))
    assert not {"params", "lr", "momentum", "weight_decay"} & set(option_names("sgd"))


def test_optimizer_settings(drift: None) -> None:
    weights = []
    for sets in (["AdamW"], ["RMSprop"], ["Drift"], ["SGD"], ["sgd", "train.optimizer_options.nesterov=true"]):
        learner = learner_for("replay", *SMALL, f"train.optimizer={sets[0]}", *sets[1:])
        learner.learn(learner.stream.tasks[0], Silent())
        weights.append(learner.network.head.weight.detach())
    assert all(weight.isfinite().all() for weight in weights)
    assert len({tuple(weight.flatten().tolist()) for weight in weights}) == len(weights)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            ["train.optimizer=adam", "train.optimizer_options.beta=[0.9, 0.9]"],
            r"beta is not.*adam.*did you mean 'betas'",
        ),
        (["train.optimizer_options.params=3"], r"optimizer_options\.params is not an option of sgd"),
        (["train.optimizer=adam", "train.optimizer_options.betas=[0.9, 1.5]"], r"train\.optimizer adam.*1\.5"),
        (["train.optimizer=adam", "train.optimizer_options.betas=0.9"], r"train\.optimizer adam.*'betas': 0\.9"),
        (["train.momentum=0", "train.optimizer_options.nesterov=true"], r"requires a momentum"),
        (["train.optimizer_options.differentiable=true"], r"in-place operation\.$"),
        (["finetune.epochs=1", "finetune.optimizer_options.nestrov=true"], r"finetune.*did you mean 'nesterov'"),
        (
            ["train.optimizer=drift", "train.optimizer_options.history=3"],
            r"train\.optimizer drift.*an iterable",
        ),
    ],
    ids=str,
)
def test_invalid_options_are_reported_when_the_learner_is_built(drift: None, sets: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        learner_for("replay", *SMALL, *sets)


def test_a_state_that_cannot_be_stored_is_reported_when_the_learner_is_built() -> None:
    class Remembers(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.state[self.param_groups[0]["params"][0]]["seen"] = {1}

    register_optimizer("remembers")(Remembers)
    try:
        with pytest.raises(UserError, match=r"train\.optimizer remembers.*of type set"):
            learner_for("replay", *SMALL, "train.optimizer=remembers")
    finally:
        del OPTIMIZERS["remembers"]
