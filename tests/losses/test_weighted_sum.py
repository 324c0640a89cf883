"""Weighted sums of loss terms."""

import math

import pytest
import torch

from cscct.losses import TERMS, Term, WeightedSum
from cscct.methods import METHODS
from cscct.nets import CosineHead
from cscct.structs import Batch, Output, SeenClasses, Step, Task
from loss_steps import STATELESS
from oracles import tensor, vector

FIRST, SECOND = Task(0, 0, 3), Task(1, 3, 2)
SHARED = Task(1, vector("shared_inputs/n_old"), vector("shared_inputs/n_new"))
FIRST_TASK_ONLY = "class_decorrelation"


def terms_of(method: str, *more: str) -> list[Term]:
    """The losses of a method as it is registered, and add-ons with their defaults."""
    losses = METHODS[method].settings["loss"]
    return [TERMS[name](**options) for name, options in losses.items()] + [TERMS[name]() for name in more]


def maps(path: str) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(layer, dtype=torch.float64) for layer in vector(path))


def shared_step(task: Task = SHARED) -> Step:
    """The reference inputs: student's scores from a cosine head, teacher's logits as stored."""
    head = CosineHead(4).double()
    head.grow(tensor("shared_inputs/classifier_weight"))
    features, y = tensor("shared_inputs/cur"), tensor("shared_inputs/y")
    sigma, unit = torch.tensor([vector("shared_inputs/sigma"), 1.0], dtype=torch.float64)
    student = Output(maps("podnet/new_maps"), features, head(features).detach(), sigma)
    teacher = Output(maps("podnet/old_maps"), tensor("shared_inputs/ref"), tensor("shared_inputs/ref_logits"), unit)
    stored = teacher.logits.masked_fill((y >= SHARED.n_old)[:, None], torch.nan)
    classes = SeenClasses(torch.empty(0), torch.ones(student.scores.shape[1], dtype=torch.int64))
    return Step(Batch(torch.empty(0), y, y >= SHARED.n_old, stored), student, teacher, task, classes)


def test_logits_of_the_vectors() -> None:
    student = shared_step().student
    for values, path in (
        (student.scores, "lucir/logits_before_scale"),
        (student.logits, "lucir/logits"),
        (student.logits, "icarl/logits"),
    ):
        torch.testing.assert_close(values, tensor(path), atol=1e-6, rtol=0)
    assert vector("shared_inputs/ref_logits") == vector("icarl/ref_logits")


@pytest.mark.parametrize(
    ("method", "more", "path"),
    [
        ("lucir", (), "lucir/total_base"),
        ("lucir", ("csc", "ct"), "lucir/total_cscct_official"),
        ("icarl", ("csc", "ct"), "icarl/total_cscct_official"),
    ],
)
def test_totals_of_the_vectors(method: str, more: tuple[str, ...], path: str) -> None:
    loss = WeightedSum(terms_of(method, *more), SHARED)
    total, parts = loss(shared_step())
    assert total.item() == pytest.approx(vector(path), abs=1e-6)
    assert total.item() == pytest.approx(sum(part.item() for part in parts.values()), abs=1e-12)
    assert loss.needs_teacher


def test_parts_of_the_vectors() -> None:
    _, parts = WeightedSum(terms_of("lucir", "csc", "ct"), SHARED)(shared_step())
    expected = {
        "cross_entropy": vector("lucir/cross_entropy"),
        "less_forget": vector("lucir/less_forget_weighted"),
        "margin_ranking": vector("lucir/margin_ranking_K2"),
        "csc": 3 * vector("csc/value"),
        "ct": 1.5 * vector("ct/official"),
    }
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, abs=1e-6)
    _, parts = WeightedSum(terms_of("icarl"), SHARED)(shared_step())
    expected = {"cross_entropy": vector("icarl/ce"), "logit_distillation": vector("icarl/kd")}
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, abs=1e-6)


def test_growth_in_the_vectors() -> None:
    lucir = TERMS["less_forget"](weight=vector("lucir/lambda_base"), weight_scaling="sqrt_old_over_new")
    assert lucir.weight_for(SHARED) == pytest.approx(vector("lucir/lambda_cur"), abs=1e-6)

    n_new = vector("podnet/n_new")
    task = Task(1, vector("podnet/n_total") - n_new, n_new)
    assert TERMS["pod_flat"](weight_scaling="sqrt_seen_over_new").weight_for(task) == pytest.approx(
        vector("podnet/schedule"), abs=1e-6
    )
    pod = [term for term in terms_of("podnet") if term.name.startswith("pod_")]
    _, parts = WeightedSum(pod, task)(shared_step(task))
    expected = {"pod_spatial": vector("podnet/pod_spatial_weighted"), "pod_flat": vector("podnet/pod_flat_weighted")}
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in STATELESS if name != FIRST_TASK_ONLY])
@pytest.mark.parametrize(
    ("weight_scaling", "factor"),
    [
        ("constant", 1.0),
        ("sqrt_old_over_new", math.sqrt(3 / 2)),
        ("sqrt_seen_over_new", math.sqrt(5 / 2)),
        ("old_over_seen", 3 / 5),
        ("new_over_seen", 2 / 5),
    ],
)
def test_weight_scaling_of_every_term(name: str, weight_scaling: str, factor: float) -> None:
    term = TERMS[name](weight=2.0, weight_scaling=weight_scaling)  # type: ignore[arg-type]
    assert term.weight_for(SECOND) == pytest.approx(2 * factor)
    plain, _ = WeightedSum([TERMS[name](weight=1.0)], SECOND)(shared_step())
    grown, _ = WeightedSum([term], SECOND)(shared_step())
    assert grown.item() == pytest.approx(2 * factor * plain.item(), abs=1e-12)


def test_negative_totals_are_not_clamped() -> None:
    total, parts = WeightedSum([TERMS["csc"](weight=100.0)], SECOND)(shared_step())
    assert total.item() == pytest.approx(100 * vector("csc/value"), abs=1e-4)
    assert total.item() == parts["csc"].item() < 0


def active(loss: WeightedSum) -> set[str]:
    return {term.name for term, _ in loss.terms}


def test_first_task_leaves_out_terms_that_need_earlier_tasks() -> None:
    terms = [term() for term in TERMS.values()]
    loss = WeightedSum(terms, FIRST)
    classification = {"cross_entropy", "new_cross_entropy", "separated_cross_entropy", "boosting_cross_entropy", "nca"}
    assert active(loss) == {*classification, "bce_distillation", "asymmetric_contrast", FIRST_TASK_ONLY}
    assert not loss.needs_teacher
    stateless = WeightedSum([term for term in terms if term.name in STATELESS], FIRST)
    total, parts = stateless(shared_step(FIRST)._replace(teacher=None))
    assert set(parts) == active(stateless)
    assert total.isfinite()
    assert active(WeightedSum(terms, SECOND)) == set(TERMS) - {FIRST_TASK_ONLY}
    # A weight that is proportional to the old classes is 0 in the first task, so the term is not computed.
    growing = TERMS["cross_entropy"](weight_scaling="sqrt_old_over_new")
    assert active(WeightedSum([TERMS["nca"](), growing], FIRST)) == {"nca"}


def test_head_only_leaves_out_terms_of_features() -> None:
    loss = WeightedSum([term() for term in TERMS.values()], SECOND, head_only=True)
    scores = {
        "cross_entropy",
        "balanced_cross_entropy",
        "nca",
        "logit_distillation",
        "task_distillation",
        "bce_distillation",
        "margin_ranking",
        "separated_cross_entropy",
        "boosting_cross_entropy",
        "balanced_distillation",
    }
    assert active(loss) == scores | {"new_cross_entropy", "memory_cross_entropy", "logit_replay"}
    assert loss.needs_teacher
    assert not WeightedSum(terms_of("podnet", "csc", "ct"), SECOND, head_only=True).needs_teacher


@pytest.mark.parametrize("name", STATELESS)
def test_weight_zero_removes_a_term(name: str) -> None:
    terms = [TERMS["cross_entropy"](), TERMS["nca"](), TERMS[name](weight=0.0)]
    terms = [term for i, term in enumerate(terms) if i == 2 or term.name != name]
    loss = WeightedSum(terms, SECOND)
    assert name not in active(loss)
    total, parts = loss(shared_step()._replace(teacher=None))
    assert name not in parts
    assert total.item() == pytest.approx(sum(part.item() for part in parts.values()))
    assert not loss.needs_teacher


def test_options_reach_the_functions() -> None:
    """A different option gives a different value."""
    options = {
        "nca": [{"form": "paper"}, {"form": "paper", "margin": 0.1}],
        "logit_distillation": [{"temperature": 1.0}],
        "margin_ranking": [{"k": 1}, {"margin": 0.9}],
        "ct": [{"form": "batchmean"}, {"form": "paper"}, {"temperature": 1.0}],
    }
    step = shared_step()
    for name, changes in options.items():
        values = [TERMS[name](**{"weight": 1.0, **change}).value(step).item() for change in ({}, *changes)]
        assert len({round(value, 9) for value in values}) == len(values), name
