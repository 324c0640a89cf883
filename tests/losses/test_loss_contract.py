"""Properties of every loss. A newly registered loss is tested too and needs a slow version."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import oracles
from cscct.losses import TERMS, Term, register
from cscct.structs import Output
from loss_steps import COUNTS, STATELESS, TASK, make_step, select, tensors_of

NAMES = STATELESS


def numpy_of(output: Output | None) -> Any:
    assert output is not None
    *maps, features, scores, scale = (tensor.detach().numpy() for tensor in tensors_of(output).values())
    return Output(tuple(maps), features, scores, scale)


def labels_for(name: str, k: int) -> Tensor | None:
    """Labels of a step. Two standardised samples of a class have no gradient, and may be equal in 16 bits."""
    return torch.zeros(k, dtype=torch.int64) if name == "class_decorrelation" else None


def test_registry() -> None:
    assert len(NAMES) == 19
    assert {name: term.name for name, term in TERMS.items()} == {name: name for name in TERMS}


@pytest.mark.parametrize("name", NAMES)
def test_is_frozen_data_with_defaults(name: str) -> None:
    term = TERMS[name]()
    assert term.weight > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        term.weight = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_precision_of_the_result(name: str, dtype: torch.dtype, expected: torch.dtype) -> None:
    labels = labels_for(name, 9)
    value, exact = (TERMS[name]().value(make_step(dtype=kind, labels=labels)) for kind in (dtype, torch.float64))
    assert value.dtype == expected
    assert value.shape == ()
    assert value.item() == pytest.approx(exact.item(), rel=0.05, abs=0.02)
    value.backward()


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_correct(name: str) -> None:
    """Terms that train the head reach the scores, all others only features and maps."""
    step = make_step(k=6, labels=labels_for(name, 6))
    inputs = tensors_of(step.student)

    def value(*leaves: Tensor) -> Tensor:
        *maps, features, scores, scale = leaves
        return TERMS[name]().value(step._replace(student=Output(tuple(maps), features, scores, scale)))

    assert torch.autograd.gradcheck(value, list(inputs.values()))
    value(*inputs.values()).backward()
    reached = {leaf for leaf, tensor in inputs.items() if tensor.grad is not None and tensor.grad.norm() > 1e-6}
    assert reached
    if TERMS[name].trains_head:
        assert "scores" in reached
        assert "features" not in reached
    else:
        assert not reached & {"scores", "scale"}


@pytest.mark.parametrize("name", NAMES)
def test_reference_implementation(name: str) -> None:
    """Each term passes the right inputs to its function: scaled or unscaled scores, labels or is_new."""
    step = make_step()
    s, t = numpy_of(step.student), numpy_of(step.teacher)
    y, is_new, stored = step.batch.labels.numpy(), step.batch.is_new.numpy(), step.batch.stored.numpy()
    expected = {
        "cross_entropy": lambda: oracles.cross_entropy(s.logits, y),
        "balanced_cross_entropy": lambda: oracles.balanced_cross_entropy(s.logits, y, COUNTS.numpy()),
        "nca": lambda: oracles.nca(s.scores, y, float(s.scale)),
        "logit_distillation": lambda: oracles.logit_distillation(s.logits, t.logits),
        "task_distillation": lambda: oracles.task_distillation(s.logits, t.logits, [range(TASK.n_old)]),
        "bce_distillation": lambda: oracles.bce_distillation(s.logits, t.logits, y),
        "less_forget": lambda: oracles.less_forget(s.features, t.features),
        "margin_ranking": lambda: oracles.margin_ranking(s.scores, y, TASK.n_old),
        "pod_spatial": lambda: oracles.pod_spatial(s.maps, t.maps),
        "pod_flat": lambda: oracles.less_forget(s.features, t.features),
        "csc": lambda: oracles.csc(s.features, t.features, y),
        "ct": lambda: oracles.ct(s.features, t.features, is_new),
        "new_cross_entropy": lambda: oracles.cross_entropy(s.logits[is_new][:, TASK.n_old :], y[is_new] - TASK.n_old),
        "memory_cross_entropy": lambda: oracles.cross_entropy(s.logits[~is_new], y[~is_new]),
        "logit_replay": lambda: oracles.logit_replay(s.logits, stored),
        "separated_cross_entropy": lambda: oracles.separated_cross_entropy(s.logits, y, TASK.n_old),
        "boosting_cross_entropy": lambda: oracles.cross_entropy(
            s.logits / oracles.effective_weights(COUNTS.numpy(), 0.97), y
        ),
        "balanced_distillation": lambda: oracles.balanced_distillation(s.logits, t.logits, COUNTS.numpy()),
        "class_decorrelation": lambda: oracles.class_decorrelation(s.features, y),
    }
    assert TERMS[name]().value(step).item() == pytest.approx(expected[name](), abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_reaches_the_teacher(name: str) -> None:
    step = make_step()
    TERMS[name]().value(step).backward()
    assert step.teacher is not None
    for leaf, tensor in tensors_of(step.teacher).items():
        assert tensor.requires_grad
        assert tensor.grad is None, leaf


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_not_modified(name: str) -> None:
    step = make_step()
    assert step.teacher is not None
    batch = [tensor for tensor in step.batch if tensor is not None]
    before = copy.deepcopy([*tensors_of(step.student).values(), *tensors_of(step.teacher).values(), *batch])
    TERMS[name]().value(step).backward()
    after = [*tensors_of(step.student).values(), *tensors_of(step.teacher).values(), *batch]
    for original, current in zip(before, after, strict=True):
        assert torch.equal(original.nan_to_num(), current.nan_to_num())


@pytest.mark.parametrize("name", NAMES)
def test_sample_order_does_not_matter(name: str) -> None:
    step = make_step()
    shuffled = select(step, torch.randperm(9, generator=torch.Generator().manual_seed(1)))
    term = TERMS[name]()
    assert term.value(shuffled).item() == pytest.approx(term.value(step).item(), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_empty_batch_gives_a_connected_zero(name: str) -> None:
    step = make_step(k=0)
    value = TERMS[name]().value(step)
    value.backward()
    assert value.item() == 0
    assert all(tensor.grad is None or tensor.grad.isfinite().all() for tensor in tensors_of(step.student).values())


@pytest.mark.parametrize("labels", [[0], [4], [0, 1, 2], [3, 4], [0, 3], [0, 3, 4], [2, 2]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_small_and_one_sided_batches_are_finite(name: str, labels: list[int]) -> None:
    step = make_step(len(labels), labels=torch.tensor(labels))
    value = TERMS[name]().value(step)
    value.backward()
    assert value.isfinite()
    assert all(tensor.grad is None or tensor.grad.isfinite().all() for tensor in tensors_of(step.student).values())


@pytest.mark.parametrize("name", NAMES)
def test_reads_teacher(name: str) -> None:
    term, step = TERMS[name](), make_step()
    without_teacher = step._replace(teacher=None)
    if not term.reads_teacher:
        assert term.value(without_teacher).item() == term.value(step).item()
    elif term.first_task:
        assert term.value(without_teacher).isfinite()
        assert term.value(without_teacher).item() != term.value(step).item()
    else:
        with pytest.raises(ValueError, match="previous network, which the first task does not have"):
            term.value(without_teacher)


def test_names_are_unique() -> None:
    @dataclasses.dataclass(frozen=True)
    class Duplicate(Term):
        name = "csc"

    with pytest.raises(ValueError, match="a loss named csc is already registered"):
        register(Duplicate)
    assert register(TERMS["csc"]) is TERMS["csc"]
    with pytest.raises(NotImplementedError):
        Duplicate().value(make_step())
