"""Cross-entropy, plain and balanced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import settings_for
from cscct.errors import UserError
from cscct.losses import Term, WeightedSum, balanced_cross_entropy, cross_entropy
from cscct.losses.classification import BalancedCrossEntropy, CrossEntropy
from cscct.losses.proxy_nca import NCA
from cscct.structs import Batch, Output, SeenClasses, Step, Task

CASES = json.loads((Path(__file__).parent / "balanced_vectors.json").read_text())["cases"]
COUNTS = torch.tensor([20, 20, 500])


def logits_of(k: int) -> torch.Tensor:
    return torch.randn(k, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["counts"]))
def test_values_computed_elsewhere(case: dict[str, Any]) -> None:
    logits = torch.tensor(case["logits"], dtype=torch.float64, requires_grad=True)
    found = balanced_cross_entropy(logits, torch.tensor(case["labels"]), torch.tensor(case["counts"]))
    found.backward()
    assert found.item() == pytest.approx(case["value"], abs=1e-12)
    assert logits.grad is not None
    assert torch.allclose(logits.grad, torch.tensor(case["gradient"], dtype=torch.float64), rtol=0, atol=1e-12)


def test_equal_counts_change_nothing() -> None:
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    found = balanced_cross_entropy(logits, labels, torch.tensor([7, 7, 7]))
    assert found.item() == pytest.approx(cross_entropy(logits, labels).item())


def test_only_the_proportion_of_the_counts_matters() -> None:
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    found = balanced_cross_entropy(logits, labels, 10 * COUNTS)
    assert found.item() == pytest.approx(balanced_cross_entropy(logits, labels, COUNTS).item())


def test_the_best_logits_are_those_of_equal_classes() -> None:
    """Where images of all classes lie as often as they occur: plain cross-entropy is least where the class with most
    images wins; the balanced one where none does."""
    labels = torch.arange(3).repeat_interleave(COUNTS)
    for loss, best in (
        (lambda row: cross_entropy(row.expand(540, 3), labels), COUNTS.double().log()),
        (lambda row: balanced_cross_entropy(row.expand(540, 3), labels, COUNTS), torch.zeros(3, dtype=torch.float64)),
    ):
        row = best.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(row), row)
        assert gradient.abs().max() < 1e-12


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="counts must have an entry for each of the 3 classes"):
        balanced_cross_entropy(logits_of(1), torch.tensor([0]), torch.tensor([5, 5]))
    with pytest.raises(ValueError, match="labels run from 3 to 3"):
        balanced_cross_entropy(logits_of(1), torch.tensor([3]), COUNTS)


@pytest.mark.parametrize("own", [CrossEntropy(weight=2.0), NCA()], ids=lambda term: term.name)
def test_instead_takes_the_place_of_the_methods_own(own: Term) -> None:
    """Where it is active: not in the first task, which has nothing old, and not with weight 0."""
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    output = Output((), torch.zeros(4, 2), logits, torch.tensor(1.0))
    task = Task(index=1, n_old=2, n_new=1)
    step = Step(Batch(torch.empty(0), labels, labels == 2), output, None, task, SeenClasses(torch.empty(0), COUNTS))
    balanced = balanced_cross_entropy(logits, labels, COUNTS).item()
    total, parts = WeightedSum([own, BalancedCrossEntropy(instead=True)], task)(step)
    assert (total.item(), [*parts]) == (pytest.approx(balanced), ["balanced_cross_entropy"])
    total, parts = WeightedSum([own, BalancedCrossEntropy()], task)(step)
    assert total.item() == pytest.approx(balanced + own.weight * own.value(step).item())
    for where, weight in ((Task(index=0, n_old=0, n_new=3), 1.0), (task, 0.0)):
        left = WeightedSum([own, BalancedCrossEntropy(instead=True, weight=weight)], where).terms
        assert [term for term, _ in left] == [own]


def test_where_it_takes_the_place() -> None:
    for method, dataset, instead in (
        ("icarl+balanced", "digits", True),
        ("lucir+balanced", "cifar100", True),
        ("lucir+balanced", "digits", False),  # by its preset
        ("podnet+balanced", "cifar100", True),
        ("podnet+balanced", "digits", False),
        ("der+++balanced", "cifar100", False),
    ):
        found = settings_for(method, dataset).loss["balanced_cross_entropy"]
        assert found == BalancedCrossEntropy(instead=instead), (method, dataset)


def test_instead_of_nothing_is_refused() -> None:
    instead = "loss.balanced_cross_entropy.instead"
    with pytest.raises(UserError, match=r"takes the place of loss\.cross_entropy or loss\.nca"):
        settings_for("icarl-bce+balanced", "cifar100", f"{instead}=true")
    settings_for("icarl-bce+balanced", "cifar100", f"{instead}=false")


def test_icarl_is_tested_by_its_classifier_with_it() -> None:
    """Its classifier is then no longer the one that favours new classes."""
    for method, headline in (("icarl", "nme"), ("icarl+cscct", "nme"), ("icarl+balanced", "classifier")):
        assert settings_for(method, "cifar100").predict.headline == headline
    assert settings_for("icarl+balanced", "cifar100", "predict.headline=nme").predict.headline == "nme"
    assert settings_for("icarl+balanced", "digits").predict.headline == "nme"  # by its preset
