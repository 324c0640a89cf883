"""What every loss promises, whatever it computes. One registered tomorrow is tested too, and needs a slow version."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import oracles
from cscct.losses import TERMS, Term, register
from cscct.structs import Batch, Output, SeenClasses, Step, Task

NAMES = sorted(TERMS)
TASK = Task(index=1, n_old=3, n_new=2)
COUNTS = torch.tensor([4, 2, 3, 30, 50])


def make_output(k: int, classes: int, dtype: torch.dtype, gen: torch.Generator) -> Output:
    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype).requires_grad_()

    scale = torch.tensor(1.5, dtype=dtype, requires_grad=True)
    return Output((leaf(k, 2, 4, 4), leaf(k, 3, 2, 2)), leaf(k, 6), leaf(k, classes), scale)


def make_step(k: int = 9, dtype: torch.dtype = torch.float64, labels: Tensor | None = None) -> Step:
    """All leaves want a gradient, the teacher's too: a loss must not let it get there."""
    gen = torch.Generator().manual_seed(7)
    student = make_output(k, TASK.n_seen, dtype, gen)
    teacher = make_output(k, TASK.n_old, dtype, gen)
    if labels is None:
        labels = torch.arange(k) % TASK.n_seen
    is_new = labels >= TASK.n_old
    carried = torch.randn(k, TASK.n_old, generator=gen, dtype=torch.float64)
    carried[is_new] = torch.nan
    carried[labels == 1, 2:] = torch.nan  # stored when two classes were known
    means = torch.randn(TASK.n_seen, 6, generator=gen, dtype=torch.float64)
    classes = SeenClasses(torch.nn.functional.normalize(means, dim=1), COUNTS)
    return Step(Batch(torch.zeros(k, 1, 2, 2), labels, is_new, carried), student, teacher, TASK, classes)


def tensors_of(output: Output) -> dict[str, Tensor]:
    maps = {f"map {i}": one for i, one in enumerate(output.maps)}
    return {**maps, "features": output.features, "scores": output.scores, "scale": output.scale}


def numpy_of(output: Output | None) -> Any:
    assert output is not None
    *maps, features, scores, scale = (one.detach().numpy() for one in tensors_of(output).values())
    return Output(tuple(maps), features, scores, scale)


def select(step: Step, rows: Tensor) -> Step:
    def of(output: Output) -> Output:
        return Output(tuple(one[rows] for one in output.maps), output.features[rows], output.scores[rows], output.scale)

    assert step.teacher is not None
    batch = Batch(*(one[rows] for one in step.batch if one is not None))
    return Step(batch, of(step.student), of(step.teacher), step.task, step.classes)


def test_how_many_there_are() -> None:
    assert len(TERMS) == 14
    assert {name: term.name for name, term in TERMS.items()} == {name: name for name in TERMS}


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    summary = TERMS[name].__doc__ or ""
    assert summary.endswith(".")
    assert "(weight" not in summary  # what a dataclass says of itself


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
    value, exact = TERMS[name]().value(make_step(dtype=dtype)), TERMS[name]().value(make_step())
    assert value.dtype == expected
    assert value.shape == ()
    assert value.item() == pytest.approx(exact.item(), rel=0.05, abs=0.02)
    value.backward()


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_right(name: str) -> None:
    """And reaches what the term says it trains: scores where the head is trained, features or maps where not."""
    step = make_step(k=6)
    inputs = tensors_of(step.student)

    def value(*leaves: Tensor) -> Tensor:
        *maps, features, scores, scale = leaves
        return TERMS[name]().value(step._replace(student=Output(tuple(maps), features, scores, scale)))

    assert torch.autograd.gradcheck(value, list(inputs.values()))
    value(*inputs.values()).backward()
    reached = {leaf for leaf, one in inputs.items() if one.grad is not None and one.grad.norm() > 1e-6}
    assert reached
    if TERMS[name].trains_head:
        assert "scores" in reached
        assert "features" not in reached
    else:
        assert not reached & {"scores", "scale"}


@pytest.mark.parametrize("name", NAMES)
def test_slow_version(name: str) -> None:
    """Each term hands its function the right things: scaled or unscaled scores, labels or what is new."""
    step = make_step()
    s, t = numpy_of(step.student), numpy_of(step.teacher)
    assert step.batch.carried is not None
    y, is_new, carried = step.batch.labels.numpy(), step.batch.is_new.numpy(), step.batch.carried.numpy()
    expected = {
        "cross_entropy": lambda: oracles.cross_entropy(s.logits, y),
        "balanced_cross_entropy": lambda: oracles.balanced_cross_entropy(s.logits, y, COUNTS.numpy()),
        "nca": lambda: oracles.nca(s.scores, y, float(s.scale)),
        "logit_distillation": lambda: oracles.logit_distillation(s.logits, t.logits),
        "bce_distillation": lambda: oracles.bce_distillation(s.logits, t.logits, y),
        "less_forget": lambda: oracles.less_forget(s.features, t.features),
        "margin_ranking": lambda: oracles.margin_ranking(s.scores, y, TASK.n_old),
        "pod_spatial": lambda: oracles.pod_spatial(s.maps, t.maps),
        "pod_flat": lambda: oracles.less_forget(s.features, t.features),
        "csc": lambda: oracles.csc(s.features, t.features, y),
        "ct": lambda: oracles.ct(s.features, t.features, is_new),
        "new_cross_entropy": lambda: oracles.cross_entropy(s.logits[is_new][:, TASK.n_old :], y[is_new] - TASK.n_old),
        "memory_cross_entropy": lambda: oracles.cross_entropy(s.logits[~is_new], y[~is_new]),
        "logit_replay": lambda: oracles.logit_replay(s.logits, carried),
    }
    assert TERMS[name]().value(step).item() == pytest.approx(expected[name](), abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_reaches_the_teacher(name: str) -> None:
    step = make_step()
    TERMS[name]().value(step).backward()
    assert step.teacher is not None
    for leaf, one in tensors_of(step.teacher).items():
        assert one.requires_grad
        assert one.grad is None, leaf


@pytest.mark.parametrize("name", NAMES)
def test_inputs_stay_as_they_were(name: str) -> None:
    step = make_step()
    assert step.teacher is not None
    batch = [one for one in step.batch if one is not None]
    before = copy.deepcopy([*tensors_of(step.student).values(), *tensors_of(step.teacher).values(), *batch])
    TERMS[name]().value(step).backward()
    after = [*tensors_of(step.student).values(), *tensors_of(step.teacher).values(), *batch]
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_order_of_the_batch_does_not_matter(name: str) -> None:
    step = make_step()
    turned = select(step, torch.randperm(9, generator=torch.Generator().manual_seed(1)))
    term = TERMS[name]()
    assert term.value(turned).item() == pytest.approx(term.value(step).item(), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_empty_batch_gives_a_zero_that_can_be_descended(name: str) -> None:
    step = make_step(k=0)
    value = TERMS[name]().value(step)
    value.backward()
    assert value.item() == 0
    assert all(one.grad is None or one.grad.isfinite().all() for one in tensors_of(step.student).values())


@pytest.mark.parametrize("labels", [[0], [4], [0, 1, 2], [3, 4], [0, 3], [0, 3, 4], [2, 2]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_small_and_one_sided_batches_are_finite(name: str, labels: list[int]) -> None:
    step = make_step(len(labels), labels=torch.tensor(labels))
    value = TERMS[name]().value(step)
    value.backward()
    assert value.isfinite()
    assert all(one.grad is None or one.grad.isfinite().all() for one in tensors_of(step.student).values())


@pytest.mark.parametrize("name", NAMES)
def test_teacher_is_read_only_where_the_term_says_so(name: str) -> None:
    term, step = TERMS[name](), make_step()
    alone = step._replace(teacher=None)
    if not term.reads_teacher:
        assert term.value(alone).item() == term.value(step).item()
    elif term.first_task:
        assert term.value(alone).isfinite()
        assert term.value(alone).item() != term.value(step).item()
    else:
        with pytest.raises(ValueError, match="previous network, and there is none in the first task"):
            term.value(alone)


def test_names_are_taken_once() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other(Term):
        name = "csc"

    with pytest.raises(ValueError, match="a loss named csc is already registered"):
        register(Other)
    assert register(TERMS["csc"]) is TERMS["csc"]
    with pytest.raises(NotImplementedError):
        Other().value(make_step())
