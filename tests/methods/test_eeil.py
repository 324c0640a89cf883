"""EEIL: distillation by task, and the balanced stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import oracles
from conftest import Silent, learner_for
from cscct.losses import TERMS, task_distillation
from cscct.structs import Task
from loss_steps import make_step

TASKS = (range(2), range(2, 5))


def test_slow_version_with_several_tasks() -> None:
    rng = np.random.default_rng(2)
    teacher = rng.normal(size=(6, 5))
    known = torch.from_numpy(teacher)

    def fast(logits: torch.Tensor) -> torch.Tensor:
        return task_distillation(logits, known, (*TASKS, range(5, 7)))

    oracles.compare(fast, lambda logits: oracles.task_distillation(logits, teacher, TASKS), rng.normal(size=(6, 7)))


def test_term_reads_the_boundaries_of_earlier_tasks() -> None:
    step = make_step()
    assert step.teacher is not None
    task = Task(index=2, n_old=3, n_new=2, earlier=(1, 2))
    logits = [output.logits.detach().numpy() for output in (step.student, step.teacher)]
    expected = oracles.task_distillation(*logits, [range(1), range(1, 3)])
    assert TERMS["task_distillation"]().value(step._replace(task=task)).item() == pytest.approx(expected, abs=1e-10)


def test_balanced_stage_reduces_the_bias_to_new_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_for("eeil", "train.epochs=4", "data.classes=6", "protocol.base=4")
    shares: dict[str, float] = {}
    teachers: list[Any] = []
    real = learner._run_stage

    def spy(name: str, stage: Any, context: Any, events: Any) -> None:
        real(name, stage, context, events)
        indices, _ = learner.stream.seen_images(context.task.n_seen, "test")
        scores = torch.cat([out.scores for out in learner.evaluator.read(learner.stream.test_view, indices)])
        shares[name] = float((scores.argmax(dim=1) >= context.task.n_old).float().mean())
        teachers.append(learner.teacher and learner.teacher.head.classes)

    monkeypatch.setattr(learner, "_run_stage", spy)
    listener = Silent()
    for task in learner.stream.tasks[:2]:
        learner.learn(task, listener)
    assert teachers == [None, 4, 6]  # in the balanced stage the teacher is the network before it
    assert shares["balanced"] < shares["train"] - 0.05
    losses = {record["stage"]: set(record["losses"]) for record in listener.epochs if record["task"] == 1}
    assert losses["train"] == losses["balanced"] == {"cross_entropy", "task_distillation"}
