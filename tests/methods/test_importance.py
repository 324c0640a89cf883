"""EWC, SI and MAS: importances against slow versions, and what the penalty does."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, nn

import oracles
from conftest import Silent, learner_for, settings_for
from cscct.losses import TERMS
from cscct.methods import EXTENSIONS, TaskContext
from cscct.nets import build_network
from cscct.structs import Batch, Task

IMAGES = torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=Generator().manual_seed(0))
LABELS = torch.tensor([2, 3, 3, 4])
TASK = Task(index=1, n_old=2, n_new=3)


def context_of(network: Any) -> TaskContext:
    def batches(pool: str, size: int, count: int | None = None) -> Any:
        assert (pool, size, count) == ("new", 1, 500)
        for image, label in zip(IMAGES, LABELS, strict=True):
            yield Batch(image[None], label[None], torch.tensor([True]))

    return TaskContext(network, TASK, None, None, torch.device("cpu"), batches, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ewc", "mas"])
def test_importances_of_single_images(name: str) -> None:
    network = build_network("lucir-resnet", 8, 1, "linear", 1, Generator().manual_seed(1), relu_head=True).double()
    for classes in (2, 3):
        network.head.grow(network.head.init_weights(classes, Generator().manual_seed(classes)))
    extension = EXTENSIONS[name](largest=1e9)  # type: ignore[call-arg]
    extension.end_task(context_of(network))

    def scalar(image: int) -> float:
        with torch.no_grad():
            logits = network(IMAGES[image : image + 1]).logits[0].numpy()
        label = int(LABELS[image]) - TASK.n_old
        return math.log(oracles.softmax(logits[TASK.n_old :])[label]) if name == "ewc" else oracles.dot(logits, logits)

    key, parameter = next((n, p) for n, p in network.backbone.named_parameters() if p.shape == (16,))
    square = {"ewc": lambda gradient: gradient**2, "mas": abs}[name]
    expected = oracles.mean_over_images(scalar, parameter.detach().numpy(), len(IMAGES), square)
    actual = extension.state[f"importance.{key}"]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
    assert expected.max() > 1e-6
    bound = float(actual.median())
    bounded = EXTENSIONS[name](decay=0.5, largest=bound)  # type: ignore[call-arg]
    for _ in range(2):
        bounded.end_task(context_of(network))
    torch.testing.assert_close(bounded.state[f"importance.{key}"], (1.5 * actual).clamp(max=bound))


def test_path_of_si() -> None:
    """Least squares in two tasks, with momentum: the gradient of the loss without the penalty is known."""
    generator = Generator().manual_seed(3)
    extension, module = EXTENSIONS["si"](largest=1e9), nn.Linear(3, 2, bias=False).double()  # type: ignore[call-arg]
    network: Any = SimpleNamespace(backbone=module)
    context, weight = context_of(network), module.weight
    expected = np.zeros(weight.shape)
    for task in range(2):
        x, y = (torch.randn(5, n, dtype=torch.float64, generator=generator) for n in (3, 2))
        extension.begin_task(context)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        positions, gradients = [weight.detach().numpy().copy()], []
        for _ in range(4):
            optimizer.zero_grad()
            parts = {"loss": (module(x) - y).square().sum() / 2}
            if task:
                step: Any = SimpleNamespace(extension=extension, context=context)
                parts["parameter_drift"] = 3 * TERMS["parameter_drift"]().value(step)
                state = [extension.state[f"{part}.weight"].numpy() for part in ("importance", "anchor")]
                drift = oracles.parameter_drift(state[0], positions[-1], state[1])
                assert parts["parameter_drift"].item() == pytest.approx(3 * drift, abs=1e-6)
            extension.backward(torch.stack(list(parts.values())).sum(), parts, [weight])
            gradients.append(((x @ weight.T - y).T @ x).detach().numpy())
            assert np.allclose(weight.grad, gradients[-1]) == (not task or not drift)
            optimizer.step()
            extension.after_step(context)
            positions.append(weight.detach().numpy().copy())
        extension.end_task(context)
        expected += oracles.path_importance(gradients, positions, 0.1)
        np.testing.assert_allclose(extension.state["importance.weight"], expected, rtol=0, atol=1e-6)
    assert set(extension.state) == {"importance.weight", "anchor.weight"}
    assert (expected > 0).any()


@pytest.mark.parametrize("name", ["ewc", "si", "mas"])
def test_important_parameters_change_less(name: str) -> None:
    """Of two runs from the same first task, one with the penalty and one without."""
    sets = ["train.epochs=5", "data.train_per_class=40", "data.classes=6", "protocol.base=3"]
    learner = learner_for(name, *sets, *([] if name == "si" else [f"extension.{name}.samples=20"]))
    learner.learn(learner.stream.tasks[0], Silent())
    other = copy.deepcopy(learner)
    other.config = replace(other.config, terms=tuple(t for t in other.config.terms if t.name != "parameter_drift"))
    first = dict(learner.extension.state)
    drifts = []
    for each in (learner, other):
        each.learn(each.stream.tasks[1], Silent())
        parameters = each.network.backbone.named_parameters()
        changes = [(first[f"importance.{n}"] * (p - first[f"anchor.{n}"]) ** 2).sum() for n, p in parameters]
        drifts.append(float(torch.stack(changes).detach().sum()))
    assert 0 < drifts[0] < 0.7 * drifts[1]
    assert torch.equal(learner.network.head.old_weight, other.network.head.old_weight)


@pytest.mark.parametrize("name", ["ewc", "si", "mas"])
@pytest.mark.parametrize("dataset", ["digits", "cifar100", "imagenet-subset", "folder"])
def test_largest_penalty_is_stable(name: str, dataset: str) -> None:
    """Heavy-ball momentum on a parabola converges if curvature times rate is at most 2 (1 + momentum)."""
    for recipe in ("released", *(["printed"] if dataset in ("cifar100", "imagenet-subset") else [])):
        settings = settings_for(f"{name}+csc", dataset, recipe=recipe)
        largest = settings.loss["parameter_drift"].weight * settings.active_extension.largest  # type: ignore[union-attr]
        assert largest * settings.train.lr < 0.6 * 2 * (1 + settings.train.momentum)


def test_images_of_all_classes_are_used() -> None:
    learner = learner_for("ewc", "data.train_per_class=20")
    context = learner.context(learner.stream.tasks[0])
    labels = torch.cat([batch.labels for batch in context.batches("new", 1, 8)])
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sum(len(batch.labels) for batch in context.batches("new", 32, 500)) == 80
