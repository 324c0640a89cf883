"""Cross-entropy, plain and balanced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import settings_for
from cscct.errors import UserError
from cscct.losses import balanced_cross_entropy, cross_entropy
from cscct.losses.classification import BalancedCrossEntropy, CrossEntropy
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


def test_instead_takes_the_place_of_the_plain_one() -> None:
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    output = Output((), torch.zeros(4, 2), logits, torch.tensor(1.0))
    batch = Batch(torch.empty(0), labels, labels == 2)
    step = Step(batch, output, None, Task(index=1, n_old=2, n_new=1), SeenClasses(torch.empty(0), COUNTS))
    terms = [CrossEntropy(), BalancedCrossEntropy(instead=True)]
    total = sum(term.value(step).item() for term in terms)
    assert total == pytest.approx(balanced_cross_entropy(logits, labels, COUNTS).item())
    for method, dataset, instead in (
        ("icarl+balanced", "digits", True),
        ("lucir+balanced", "cifar100", True),
        ("lucir+balanced", "digits", False),  # by its preset
        ("podnet+balanced", "cifar100", False),
    ):
        found = settings_for(method, dataset).loss["balanced_cross_entropy"]
        assert found == BalancedCrossEntropy(instead=instead), (method, dataset)


@pytest.mark.parametrize(
    ("method", "sets"),
    [
        ("podnet+balanced", ["loss.balanced_cross_entropy.instead=true"]),
        ("lucir+balanced", ["loss.balanced_cross_entropy.weight=3"]),
        ("lucir+balanced", ["loss.balanced_cross_entropy.growth=new_over_seen"]),
    ],
)
def test_no_more_is_taken_away_than_there_is(method: str, sets: list[str]) -> None:
    with pytest.raises(UserError, match=r"instead takes the place of loss\.cross_entropy"):
        settings_for(method, "cifar100", *sets)
    settings_for(method, "cifar100", *sets, "loss.balanced_cross_entropy.instead=false")


def test_icarl_is_tested_by_its_classifier_with_it() -> None:
    """Its classifier is then no longer the one that favours new classes."""
    for method, headline in (("icarl", "nme"), ("icarl+cscct", "nme"), ("icarl+balanced", "classifier")):
        assert settings_for(method, "cifar100").predict.headline == headline
    assert settings_for("icarl+balanced", "cifar100", "predict.headline=nme").predict.headline == "nme"
    assert settings_for("icarl+balanced", "digits").predict.headline == "nme"  # by its preset
