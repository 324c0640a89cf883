"""The learner: memory, evaluation and reproducibility."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conftest import Silent, learner_for, run_quietly, without_timings
from cscct.features import DEFAULT_PREDICTORS
from cscct.learn.evaluation import matrix_row
from cscct.losses import Term
from cscct.memory import herd
from cscct.structs import SeenClasses, Step

SMALL = ("train.epochs=2", "data.train_per_class=30")


@pytest.mark.parametrize("method", ["lucir+cscct", "podnet+cscct", "icarl+cscct"])
def test_same_seed_same_result(method: str, tmp_path: Path) -> None:
    once, again = (run_quietly(tmp_path / name, method, *SMALL) for name in ("a", "b"))
    assert without_timings(once) == without_timings(again)
    assert len(once["weights_sha256"]) == 64
    other = run_quietly(tmp_path / "c", method, *SMALL, "seed=2")
    assert other["weights_sha256"] != once["weights_sha256"]


def test_memory_is_herded_from_the_class_with_the_final_network() -> None:
    # A batch holds one class, so that its features are the same bits whether it is read alone or with others.
    learner = learner_for("lucir", *SMALL, "memory.per_class=4", "runtime.eval_batch_size=30")
    first, second = learner.stream.tasks[:2]
    learner.learn(first, Silent())
    kept = {label: list(ranks) for label, ranks in learner.memory.exemplars.items()}
    learner.learn(second, Silent())
    assert {label: learner.memory.exemplars[label] for label in first.classes} == kept  # old ones are not herded again
    for label in second.classes:
        members = learner.stream.train[label]
        features = learner.evaluator.features(learner.stream.train_view, torch.tensor(members))
        assert learner.memory.exemplars[label] == [members[rank] for rank in herd(features, 4)]


def test_total_budget_shrinks_by_rank() -> None:
    learner = learner_for("icarl", *SMALL, "memory.policy=total", "memory.total=24")
    sizes = []
    earlier: dict[int, list[int]] = {}
    for task in learner.stream.tasks:
        learner.learn(task, Silent())
        exemplars = learner.memory.exemplars
        assert sum(map(len, exemplars.values())) <= 24
        for label, ranks in earlier.items():
            assert exemplars[label] == ranks[: len(exemplars[label])]
        earlier = {label: list(ranks) for label, ranks in exemplars.items()}
        sizes.append(len(exemplars[0]))
    assert sizes == [6, 4, 3, 2]


def test_evaluation_agrees_with_one_image_at_a_time() -> None:
    learner = learner_for("podnet", *SMALL, "data.test_per_class=6")
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
    confusion = learner.evaluate(task).confusion
    rows = {name: matrix_row(counts, learner.stream.tasks[:2]) for name, counts in confusion.items()}
    learner.network.eval()
    right, close = ({head: [0, 0] for head in DEFAULT_PREDICTORS} for _ in range(2))
    with torch.no_grad():
        for label in range(task.n_seen):
            for index in learner.stream.test[label]:
                output = learner.network(learner.stream.test_view.plain(torch.tensor([index])))
                distances = (learner.means - F.normalize(output.features, dim=1)).norm(dim=1)
                part = int(label >= task.n_old)
                scores = {"classifier": output.scores[0], "nme": -distances}
                scores |= {name: predictor.scores(output.features)[0] for name, predictor in learner.linear.items()}
                for head, values in scores.items():
                    best, second = values.topk(2).values.tolist()
                    right[head][part] += int(values.argmax()) == label
                    close[head][part] += best - second < 1e-5  # where roundings decide
    for head, row in rows.items():
        for part, size in enumerate((6 * task.n_old, 6 * task.n_new)):
            assert row[part] * size / 100 == pytest.approx(right[head][part], abs=close[head][part] + 1e-6)
    assert set(rows) == set(DEFAULT_PREDICTORS)
    assert sum(sum(counts) for counts in close.values()) < 8  # of 144


def test_evaluation_returns_features() -> None:
    learner = learner_for("lucir", *SMALL, "data.test_per_class=6", "runtime.eval_batch_size=7")
    task = learner.stream.tasks[0]
    learner.learn(task, Silent())
    indices, _ = learner.stream.seen_images(task.n_seen)
    expected = learner.evaluator.features(learner.stream.test_view, indices)
    assert torch.equal(learner.evaluate(task).features, expected)


@dataclass(frozen=True)
class Probe(Term):
    """Records the class statistics of each step."""

    name = "probe"
    first_task = True
    seen_classes: list[SeenClasses | None] = field(default_factory=list)

    def value(self, step: Step) -> Tensor:
        self.seen_classes.append(step.classes)
        return step.student.features.sum() * 0.0


def test_classes_in_the_previous_space() -> None:
    """Means, similarities and image counts of old and new classes before a task."""
    learner = learner_for("replay", *SMALL)
    probe = Probe()
    learner.config = replace(learner.config, terms=(*learner.config.terms, probe))
    first, second = learner.stream.tasks[:2]
    learner.learn(first, Silent())
    assert probe.seen_classes
    assert set(probe.seen_classes) == {None}
    old, stream = learner.means.clone(), learner.stream
    read = {c: learner.evaluator.features(stream.train_view, torch.tensor(stream.train[c])) for c in second.classes}
    new = torch.stack([F.normalize(F.normalize(rows, dim=1).mean(dim=0), dim=0) for rows in read.values()])
    probe.seen_classes.clear()
    learner.learn(second, Silent())
    assert learner.similarity.shape == (second.n_new, second.n_old)
    torch.testing.assert_close(learner.similarity, new @ old.T, atol=1e-5, rtol=0)
    for seen in probe.seen_classes:
        assert seen is not None
        torch.testing.assert_close(seen.means, torch.cat([old, new]), atol=1e-5, rtol=0)
        assert seen.counts.tolist() == [learner.memory.quota(second.n_old)] * second.n_old + [
            len(stream.train[c]) for c in second.classes
        ]


@pytest.mark.parametrize("views", [1, 2])
def test_both_networks_read_the_second_view(views: int) -> None:
    steps: list[Step] = []

    @dataclass(frozen=True)
    class Recorder(Term):
        name = "recorder"
        first_task = True

        def value(self, step: Step) -> Tensor:
            steps.append(step)
            return step.student.features.sum() * 0.0

    learner = learner_for("replay", "train.epochs=1", "data.train_per_class=30", f"train.views={views}")
    learner.config = replace(learner.config, terms=(*learner.config.terms, Recorder()))
    first, second = learner.stream.tasks[:2]
    learner.learn(first, Silent())
    teacher = learner.network.frozen_copy()
    assert all(step.second_teacher is None for step in steps)
    steps.clear()
    learner.learn(second, Silent())
    assert steps
    for step in steps:
        if views == 1:
            assert step.batch.second is step.second is step.second_teacher is None
            continue
        assert step.batch.second is not None
        assert step.second is not None
        assert step.second_teacher is not None
        assert not torch.equal(step.second.features, step.student.features)
        assert step.second.logits.requires_grad
        assert step.second.logits.shape == step.student.logits.shape
        read = teacher(step.batch.second).features
        torch.testing.assert_close(step.second_teacher.features, read, atol=1e-4, rtol=1e-4)


def test_imprinted_rows_before_training() -> None:
    learner = learner_for("lucir", *SMALL)
    first, second = learner.stream.tasks[:2]
    learner.learn(first, Silent())
    rows = learner._initial_weights(second, learner._class_features(second))
    old = learner.network.head.weight.detach()
    assert rows.shape == (second.n_new, 64)
    assert rows.norm(dim=1).numpy() == pytest.approx(old.norm(dim=1).mean().item(), rel=1e-5)


@pytest.mark.parametrize("setting", ["views=2", "drop_last=true", "sampler=mixed", "sampler=replay"])
def test_planned_images_are_those_seen(setting: str) -> None:
    listener = Silent()
    sets = (f"{stage}.{text}" for stage in ("train", "finetune") for text in (setting, "batch_size=7"))
    learner = learner_for("podnet", "train.epochs=2", "data.train_per_class=10", *sets)
    seen = 0
    real = listener.step

    def count(task: Any, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        nonlocal seen
        seen += images
        real(task, stage, epoch, epochs, images, parts)

    listener.step = count  # type: ignore[method-assign]
    planned = 0
    for task in learner.stream.tasks:
        planned += learner.planned_images(task)
        learner.learn(task, listener)
    assert seen == planned


def test_learning_rates_of_the_schedule_are_used() -> None:
    listener = Silent()
    learner = learner_for("podnet", "train.epochs=4", "train.schedule.epoch_offset=-1", "data.train_per_class=20")
    learner.learn(learner.stream.tasks[0], listener)
    rates = [record["lr"] for record in listener.epochs]
    assert rates == pytest.approx([0.1 * (1 + math.cos(math.pi * max(0, e - 1) / 4)) / 2 for e in range(4)])
    assert rates[0] == rates[1] == 0.1
