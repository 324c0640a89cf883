"""A-GEM: the projected gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import oracles
from conftest import Silent, learner_for
from cscct.methods import EXTENSIONS
from cscct.methods.a_gem import AGEM


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_projection(sign: float) -> None:
    generator = torch.Generator().manual_seed(5)
    parameters = [torch.randn(n, dtype=torch.float64, generator=generator, requires_grad=True) for n in (3, 4, 2)]
    targets = [torch.randn(n, dtype=torch.float64, generator=generator) for n in (3, 4)]
    new = sum((p - t).square().sum() for p, t in zip(parameters[:2], targets, strict=True))
    memory = sign * sum((p - 1.1 * t).square().sum() for p, t in zip(parameters[:2], targets, strict=True))
    gradients = [torch.cat(torch.autograd.grad(loss, parameters[:2], retain_graph=True)) for loss in (new, memory)]
    expected = oracles.project(gradients[0].numpy(), gradients[1].numpy())
    EXTENSIONS["a-gem"]().backward(new + memory, {"new": new, "memory_cross_entropy": memory}, parameters)
    actual = torch.cat([p.grad for p in parameters[:2] if p.grad is not None]).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    assert parameters[2].grad is None
    assert oracles.dot(actual, gradients[1].numpy()) > -1e-9
    assert np.allclose(actual, gradients[0]) == (sign > 0)


def test_no_step_of_a_run_opposes_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[tuple[float, float]] = []
    real = AGEM.backward

    def spy(self: AGEM, total: Any, parts: Any, parameters: Any) -> None:
        reference = parts.get("memory_cross_entropy")
        if reference is not None:
            new = torch.autograd.grad(total - reference, parameters, retain_graph=True)
            constraint = torch.autograd.grad(reference, parameters, retain_graph=True)
        real(self, total, parts, parameters)
        if reference is not None:
            norm = sum(float(r.square().sum()) for r in constraint)
            before = sum(float((g * r).sum()) for g, r in zip(new, constraint, strict=True))
            after = sum(float((p.grad * r).sum()) for p, r in zip(parameters, constraint, strict=True))
            products.append((before, after / max(norm, 1e-12)))

    monkeypatch.setattr(AGEM, "backward", spy)
    learner = learner_for("a-gem", "train.epochs=2", "data.train_per_class=40")
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
    assert min(before for before, _ in products) < 0  # the constraint was active
    assert min(after for _, after in products) > -1e-3
