"""Which tensors change in which stage, and that the rest keep their bits."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conftest import Silent, learner_for
from cscct.learn import learner as learner_module
from cscct.learn.learner import Learner
from cscct.specs import Finetune

SMALL = ("train.epochs=2", "data.train_per_class=30")


def snapshot(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in learner.network.state_dict().items()}


def groups(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, bool]:
    """Whether any tensor of each group changed."""

    def group(name: str) -> str:
        if "running_" in name or "num_batches" in name:
            return "statistics"
        return "backbone" if name.startswith("backbone") else name.removeprefix("head.").split("_")[0]

    changed: dict[str, bool] = {}
    for name in before:
        same = torch.equal(before[name], after[name])
        changed[group(name)] = changed.get(group(name), False) or not same
    return changed


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, dict[str, bool]]]:
    """Records the tensors that each stage changed."""
    seen: list[tuple[str, int, dict[str, bool]]] = []
    real = learner_module.run_stage

    def spy(work, stage, listener, *more):  # type: ignore[no-untyped-def]
        before = {name: tensor.detach().clone() for name, tensor in work.network.state_dict().items()}
        teacher = {n: t.clone() for n, t in work.teacher.state_dict().items()} if work.teacher else {}
        real(work, stage, listener, *more)
        after = work.network.state_dict()
        seen.append((work.name, work.task.index, groups(before, after)))
        if work.teacher:
            assert all(torch.equal(teacher[n], t) for n, t in work.teacher.state_dict().items()), "the teacher changed"

    monkeypatch.setattr(learner_module, "run_stage", spy)
    return seen


def take_two_tasks(method: str, *sets: str) -> Learner:
    learner = learner_for(method, *SMALL, *sets)
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
    return learner


ALL = {"backbone": True, "statistics": True, "new": True, "scale": True}


@pytest.mark.parametrize("method", ["lucir+cscct", "icarl+cscct"])
def test_lucir_and_icarl(method: str, stages: list[tuple[str, int, dict[str, bool]]]) -> None:
    take_two_tasks(method)
    assert stages == [("train", 0, {**ALL, "old": False}), ("train", 1, {**ALL, "old": False})]


def test_podnet(stages: list[tuple[str, int, dict[str, bool]]]) -> None:
    """Training leaves old proxies; fine-tuning moves all proxies and lets the statistics drift, and nothing else."""
    take_two_tasks("podnet+cscct")
    tuned = {"backbone": False, "statistics": True, "new": True, "old": True, "scale": False}
    assert stages == [
        ("train", 0, {**ALL, "old": False}),
        ("train", 1, {**ALL, "old": False}),
        ("finetune", 1, tuned),
    ]


def test_replay_trains_everything(stages: list[tuple[str, int, dict[str, bool]]]) -> None:
    take_two_tasks("replay")
    assert stages[1] == ("train", 1, {**ALL, "old": True})


def test_frozen_statistics(stages: list[tuple[str, int, dict[str, bool]]]) -> None:
    """LUCIR's optional balanced stage: both blocks of rows, and not even the statistics move."""
    learner = learner_for("lucir", *SMALL)
    learner.config = replace(learner.config, finetune=Finetune(epochs=1, batch_norm="frozen", lr=0.01))
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
    tuned = {"backbone": False, "statistics": False, "new": True, "old": True, "scale": False}
    assert stages[-1] == ("finetune", 1, tuned)


@pytest.mark.parametrize("method", ["lucir+cscct", "podnet+cscct"])
def test_old_rows_keep_their_bits_through_a_task(method: str) -> None:
    learner = learner_for(method, *SMALL)
    first, second = learner.stream.tasks[:2]
    learner.config = replace(learner.config, finetune=None)
    learner.learn(first, Silent())
    before = learner.network.head.weight.detach().clone()
    learner.learn(second, Silent())
    assert torch.equal(learner.network.head.old_weight, before)
    assert not learner.network.head.old_weight.requires_grad


def test_teacher_is_the_network_after_fine_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_for("podnet", *SMALL)
    teachers = []
    real = learner_module.run_stage

    def spy(work, stage, listener, *more):  # type: ignore[no-untyped-def]
        if work.name == "train":
            held = learner.teacher
            teachers.append({n: t.clone() for n, t in held.state_dict().items()} if held else None)
            assert (work.teacher is None) == (held is None)
            if held:  # the loop reads from a form of it that says the same
                images = learner.stream.test_view.plain(torch.arange(3))
                torch.testing.assert_close(work.teacher(images).features, held(images).features, atol=1e-5, rtol=1e-4)
        real(work, stage, listener, *more)

    monkeypatch.setattr(learner_module, "run_stage", spy)
    ends = []
    for task in learner.stream.tasks[:3]:
        learner.learn(task, Silent())
        ends.append(snapshot(learner))
    assert teachers[0] is None
    for teacher, end in zip(teachers[1:], ends, strict=False):
        assert teacher is not None
        assert all(torch.equal(teacher[name], end[name]) for name in end)


def test_fine_tuning_leaves_out_losses_on_features() -> None:
    listener = Silent()
    learner = learner_for("podnet+cscct", *SMALL)
    for task in learner.stream.tasks[:2]:
        learner.learn(task, listener)
    by_stage = {record["stage"]: set(record["losses"]) for record in listener.epochs if record["task"] == 1}
    assert by_stage == {"train": {"nca", "pod_spatial", "pod_flat", "csc", "ct"}, "finetune": {"nca"}}


@pytest.mark.parametrize(("batch_norm", "passes"), [("drift", 2), ("frozen", 1)])
def test_features_that_did_not_change_are_not_herded_again(
    batch_norm: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_for("podnet", *SMALL, f"finetune.batch_norm={batch_norm}")
    learner.learn(learner.stream.tasks[0], Silent())
    herded = []
    real = learner._herd
    monkeypatch.setattr(learner, "_herd", lambda task: (herded.append(task), real(task)))
    learner.learn(learner.stream.tasks[1], Silent())
    assert len(herded) == passes
    kept = {label: list(ranks) for label, ranks in learner.memory.exemplars.items()}
    real(learner.stream.tasks[1])  # with the network as it is now
    assert learner.memory.exemplars == kept
