"""Co2L: its losses against slow versions, the projection and the stages."""

from pathlib import Path

import numpy as np
import pytest
import torch

import oracles
from conftest import Silent, learner_for, run_quietly
from cscct.losses import asymmetric_contrast, relation_distillation

SMALL = ("train.epochs=1", "data.train_per_class=16", "data.classes=6", "protocol.base=2", "protocol.step=2")
LABELS = np.array([0, 0, 1, 2, 2] * 2)  # two views


def vectors(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(10, 4))


def test_losses_match_loops() -> None:
    is_new, labels = LABELS > 0, torch.from_numpy(LABELS)
    oracles.compare(
        lambda z: asymmetric_contrast(z, labels, labels > 0),
        lambda z: oracles.asymmetric_contrast(z, LABELS, is_new),
        vectors(0),
    )
    teacher = vectors(1)
    oracles.compare(
        lambda z: relation_distillation(z, torch.from_numpy(teacher), 0.2, 0.05),
        lambda z: oracles.relation_distillation(z, teacher, 0.2, 0.05),
        vectors(0),
    )


def test_exemplars_are_not_anchors_and_the_teacher_gets_no_gradient() -> None:
    labels, z = torch.from_numpy(LABELS), torch.from_numpy(vectors(0)).requires_grad_()
    assert asymmetric_contrast(z, labels, torch.zeros(10, dtype=torch.bool)).item() == 0
    teacher = torch.from_numpy(vectors(1)).requires_grad_()
    relation_distillation(z, teacher).backward()
    assert teacher.grad is None
    assert z.grad is not None
    empty = torch.zeros(0, 4, requires_grad=True)
    assert asymmetric_contrast(empty, labels[:0], labels[:0] > 0).item() == relation_distillation(empty, empty).item()


def test_the_projection_is_trained_and_the_teacher_keeps_the_previous_one() -> None:
    learner = learner_for("co2l", *SMALL, "stages.classifier.epochs=1")
    first, second, _ = learner.stream.tasks
    learner.learn(first, Silent())
    state = learner.extension.state
    trained = state["out"].detach().clone()
    assert not torch.equal(trained, state["previous.out"])  # its initial weights
    learner.learn(second, Silent())
    assert torch.equal(state["previous.out"], trained)
    assert not torch.equal(state["out"], trained)


@pytest.mark.parametrize("method", ["co2l", "co2l+cscct"])
def test_runs_end_to_end(method: str, tmp_path: Path) -> None:
    listener = Silent()
    result = run_quietly(tmp_path / "run", method, *SMALL, "stages.classifier.epochs=20", listener=listener)
    losses = {(record["task"], record["stage"]): set(record["losses"]) for record in listener.epochs}
    added = {"csc", "ct"} if "+" in method else set()
    assert losses[0, "train"] == {"asymmetric_contrast"}
    assert losses[1, "train"] == {"asymmetric_contrast", "relation_distillation"} | added
    assert losses[0, "classifier"] == losses[1, "classifier"] == {"cross_entropy"}
    assert result["tasks"][0]["accuracy"]["classifier"] > 60  # the stage follows the first task, too; chance: 50
