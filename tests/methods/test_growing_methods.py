"""DER, MEMO and FOSTER: growth, frozen branches, compression; and methods without or with all exemplars."""

from pathlib import Path

import pytest
import torch

import cscct
import oracles
from conftest import Silent, learner_for, run_quietly
from cscct.losses import TERMS
from cscct.methods import EXTENSIONS
from cscct.nets import GrowingBackbone
from loss_steps import TASK, make_step

SMALL = ("train.epochs=1", "data.train_per_class=16", "data.classes=6", "protocol.base=2", "protocol.step=2")
STAGES = {"der": ("stages.classifier.epochs=1",), "memo": (), "foster": ("stages.compression.epochs=1",)}


@pytest.mark.parametrize("method", STAGES)
def test_branches(method: str) -> None:
    learner = learner_for(method, *SMALL, *STAGES[method])
    backbone = learner.network.backbone
    assert isinstance(backbone, GrowingBackbone)
    first = {}
    for task in learner.stream.tasks:
        learner.learn(task, Silent())
        assert len(backbone.branches) == (1 if method == "foster" else task.index + 1)
        assert learner.network.head.features == backbone.features == 64 * len(backbone.branches)
        if method != "foster":
            state = {name: tensor.clone() for name, tensor in backbone.branches[0].state_dict().items()}
            assert all(torch.equal(state[name], tensor) for name, tensor in first.items())
            first = state
    assert learner.evaluate(task).confusion["classifier"].sum() > 0


@pytest.mark.parametrize("method", STAGES)
def test_model_predicts_the_measured_confusion(method: str, tmp_path: Path) -> None:
    result = run_quietly(tmp_path / "run", method, *SMALL, *STAGES[method])
    learner = learner_for(method, *SMALL, *STAGES[method])
    model = cscct.load(tmp_path / "run")
    indices, labels = learner.stream.seen_images(6, "test")
    names = [learner.stream.class_names[label] for label in labels.tolist()]
    images = learner.stream.test_view.plain(indices)
    with torch.no_grad():
        scores = model.reader_.network.eval()(images).scores
    predicted = [learner.stream.class_names[index] for index in scores.argmax(dim=1).tolist()]
    correct = sum(a == b for a, b in zip(predicted, names, strict=True))
    assert 100 * correct / len(names) == pytest.approx(result["tasks"][-1]["accuracy"]["classifier"], abs=0.5)


@pytest.mark.parametrize("merge_old", [True, False])
def test_the_auxiliary_loss_matches_loops(merge_old: bool) -> None:
    """Of the newest features only; old classes are one class, or each has its own weights."""
    step, width = make_step(), 4  # of six features
    extension = EXTENSIONS["auxiliary_classifier"](merge_old=merge_old)  # type: ignore[call-arg]
    rows = TASK.n_new + 1 if merge_old else TASK.n_seen
    weight = torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    extension.state["weight"] = weight
    features, labels = step.student.features.detach().numpy()[:, 2:], step.batch.labels.numpy()
    targets = [max(0, label - TASK.n_old + 1) for label in labels] if merge_old else labels
    expected = oracles.cross_entropy(features @ weight.numpy().T, targets)
    value = TERMS["auxiliary_cross_entropy"]().value(step._replace(extension=extension))
    assert value.item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("method", ["finetune", "lwf", "joint", "gdumb", "ss-il+cscct", "lucir+cwd"])
def test_runs_end_to_end(method: str, tmp_path: Path) -> None:
    listener = Silent()
    result = run_quietly(tmp_path / "run", method, *SMALL, listener=listener)
    assert len(result["tasks"]) == 3
    exemplars = [len(images) for images in cscct.load(tmp_path / "run").state_.exemplars.values()]
    expected = {"finetune": 0, "lwf": 0, "joint": 16}.get(method, 5)
    assert all(count == expected for count in exemplars)
    decorrelated = {record["task"] for record in listener.epochs if "class_decorrelation" in record["losses"]}
    assert decorrelated == ({0} if method.endswith("cwd") else set())


@pytest.mark.parametrize("method", ["finetune", "lwf"])
def test_statistics_replace_exemplars(method: str) -> None:
    learner = learner_for(method, *SMALL)
    first, second, _ = learner.stream.tasks
    learner.learn(first, Silent())
    before = {label: stats.total.clone() for label, stats in learner.statistics.items()}
    learner.learn(second, Silent())
    assert list(learner.statistics) == [0, 1, 2, 3]
    assert all(torch.equal(learner.statistics[label].total, total) for label, total in before.items())
    assert learner.means.shape == (4, 64)
    assert not any(learner.memory.exemplars.values())


def test_joint_restarts_from_the_same_weights() -> None:
    learner = learner_for("joint", *SMALL, "train.lr=1e-30", "train.momentum=0", "train.weight_decay=0")
    initial = {name: tensor.clone() for name, tensor in learner.network.backbone.named_parameters()}
    for task in learner.stream.tasks:
        learner.learn(task, Silent())
        learner.network.head.scale.data.mul_(1 if task is learner.stream.tasks[-1] else 2)
    for name, parameter in learner.network.backbone.named_parameters():
        torch.testing.assert_close(parameter, initial[name], rtol=0, atol=1e-20)
    assert learner.network.head.scale.item() == 1
    pool = learner.pools.pool(learner.stream.tasks[-1], "all")
    assert len(pool) == 6 * 16
