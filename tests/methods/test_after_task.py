"""Changes of the head after a task: alignment (WA) and bias correction (BiC)."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conftest import Silent, learner_for, settings_for
from cscct.methods import AFTER_TASK, TaskContext
from cscct.methods.bic import PENALTY, fit_correction
from cscct.nets import build_network
from cscct.runs.first_tasks import first_task_fingerprint
from cscct.structs import Task

SMALL = ("train.epochs=2", "data.train_per_class=30")
TASK = Task(index=1, n_old=3, n_new=2)


def task_end(logits: torch.Tensor, labels: torch.Tensor) -> TaskContext:
    network = build_network("lucir-resnet", 8, 1, "linear", 1, torch.Generator().manual_seed(1), relu_head=True)
    network.head.grow(network.head.init_weights(3, torch.Generator().manual_seed(2)))
    network.head.grow(5 * network.head.init_weights(2, torch.Generator().manual_seed(3)))
    with torch.no_grad():
        network.head.old_bias.fill_(0.5)
        network.head.new_bias.fill_(0.25)
    return TaskContext(
        network,
        TASK,
        held_back=lambda: (logits, labels),
        teacher=None,
        device=torch.device("cpu"),
        batches=lambda pool, size: iter(()),
        generator=lambda key: torch.Generator(),
    )


def held_back(samples: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """New classes are favoured, as after training on many of their images."""
    gen = torch.Generator().manual_seed(4)
    labels = torch.arange(samples) % TASK.n_seen
    logits = 2 * F.one_hot(labels, TASK.n_seen) + torch.randn(samples, TASK.n_seen, generator=gen)
    logits[:, TASK.n_old :] += 3
    return logits, labels


def test_new_rows_get_the_mean_norm_of_old_ones() -> None:
    end = task_end(*held_back())
    head = end.network.head
    old, new, bias = head.old_weight.clone(), head.new_weight.clone(), head.new_bias.clone()
    AFTER_TASK["align_norms"](end)
    assert torch.equal(head.old_weight, old)
    assert torch.equal(head.new_bias, bias)
    factor = old.norm(dim=1).mean() / new.norm(dim=1).mean()
    torch.testing.assert_close(head.new_weight, factor * new)
    assert head.new_weight.norm(dim=1).mean().item() == pytest.approx(old.norm(dim=1).mean().item(), rel=1e-5)


def test_correction_is_optimal() -> None:
    logits, labels = held_back()
    scale, shift = fit_correction(logits, labels, TASK.n_old)

    def objective(at: float, by: float) -> float:
        columns = logits.double().clone()
        columns[:, TASK.n_old :] = at * columns[:, TASK.n_old :] + by
        return float(F.cross_entropy(columns, labels)) + PENALTY * ((at - 1) ** 2 + by**2)

    best = objective(scale, shift)
    near = [(scale + i / 50, shift + j / 50) for i in range(-5, 6) for j in range(-5, 6)]
    assert min(objective(*point) for point in near) >= best - 1e-9
    assert best < objective(1.0, 0.0) - 0.1
    assert shift < 0


def test_correction_of_balanced_and_empty_logits() -> None:
    logits, labels = held_back(500)
    logits[:, TASK.n_old :] -= 3
    scale, shift = fit_correction(logits, labels, TASK.n_old)
    wanted = fit_correction(2 * logits, labels, TASK.n_old)
    assert (scale, shift) != wanted
    assert abs(shift) < 0.5
    assert fit_correction(torch.empty(0, 5), torch.empty(0, dtype=torch.int64), 3) == (1.0, 0.0)


def test_separable_logits_have_a_finite_correction() -> None:
    labels = torch.arange(10) % 5
    actual = fit_correction(100.0 * F.one_hot(labels, 5), labels, 3)
    assert np.isfinite(actual).all()


def test_the_correction_is_folded_into_rows_and_biases() -> None:
    end = task_end(*held_back())
    head, features = end.network.head, torch.randn(6, 64)
    before = head(features)
    scale, shift = fit_correction(*held_back(), TASK.n_old)
    AFTER_TASK["correct_bias"](end)
    after = head(features)
    torch.testing.assert_close(after[:, :3], before[:, :3])
    torch.testing.assert_close(after[:, 3:], scale * before[:, 3:] + shift)


def test_held_back_images_are_never_trained_on() -> None:
    learner = learner_for("bic", *SMALL, "memory.policy=total", "memory.total=100", "memory.held_back=0.3")
    trained: set[int] = set()
    real = learner._batches
    pools = []

    def watch(pool, *rest):  # type: ignore[no-untyped-def]
        trained.update(pool.indices.tolist())
        pools.append(pool)
        return real(pool, *rest)

    learner._batches = watch  # type: ignore[method-assign]
    sizes = []
    for task in learner.stream.tasks:
        learner.learn(task, Silent())
        logits, labels = learner._held_back(task)
        count = learner.memory.spec.held_back_of(task.n_seen)
        sizes.append(count)
        assert torch.bincount(labels).tolist() == [count] * task.n_seen
        assert logits.shape == (count * task.n_seen, task.n_seen)
        for label in range(task.n_seen):
            held = set(learner.stream.train[label][-count:])
            assert len(held) == count
            assert not held & trained
            assert not held & set(learner.memory.exemplars[label])
            assert len(learner.memory.exemplars[label]) + count <= learner.memory.spec.quota(task.n_seen)
    assert sizes == [7, 4, 3, 3]
    assert len(pools[-1]) > 0


def test_the_rows_of_wa_are_positive_and_aligned() -> None:
    learner = learner_for("wa", *SMALL)
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
        assert learner.network.head.weight.min() >= 0
    head = learner.network.head
    norms = [rows.norm(dim=1).mean().item() for rows in (head.old_weight, head.new_weight)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_a_first_task_is_shared_only_where_as_many_images_are_held_back() -> None:
    def fingerprint(share: float) -> str:
        sets = (f"memory.held_back={share}", "memory.per_class=20", "network.after_task=none", "protocol.base=4")
        return first_task_fingerprint(settings_for("bic", "digits", *sets), "the data")

    assert fingerprint(0.1) == fingerprint(0.11)  # two of twenty
    assert len({fingerprint(share) for share in (0.0, 0.1, 0.2)}) == 3


def test_after_task_is_called_from_the_second_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Task] = []
    monkeypatch.setitem(AFTER_TASK, "note", lambda end: seen.append(end.task))
    learner = learner_for("replay", *SMALL, "network.after_task=note")
    for task in learner.stream.tasks[:2]:
        learner.learn(task, Silent())
    assert seen == [learner.stream.tasks[1]]
