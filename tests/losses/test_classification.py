"""Cross-entropy, plain and balanced."""

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
def test_reference_values(case: dict[str, Any]) -> None:
    logits = torch.tensor(case["logits"], dtype=torch.float64, requires_grad=True)
    value = balanced_cross_entropy(logits, torch.tensor(case["labels"]), torch.tensor(case["counts"]))
    value.backward()
    assert value.item() == pytest.approx(case["value"], abs=1e-12)
    assert logits.grad is not None
    assert torch.allclose(logits.grad, torch.tensor(case["gradient"], dtype=torch.float64), rtol=0, atol=1e-12)


def test_equal_counts_have_no_effect() -> None:
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    value = balanced_cross_entropy(logits, labels, torch.tensor([7, 7, 7]))
    assert value.item() == pytest.approx(cross_entropy(logits, labels).item())


def test_only_the_ratio_of_counts_matters() -> None:
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    value = balanced_cross_entropy(logits, labels, 10 * COUNTS)
    assert value.item() == pytest.approx(balanced_cross_entropy(logits, labels, COUNTS).item())


def test_the_minimum_favours_no_class() -> None:
    """For images that carry no information, plain cross-entropy is minimal at the log counts of the classes, balanced
    cross-entropy at equal logits."""
    labels = torch.arange(3).repeat_interleave(COUNTS)
    for loss, best in (
        (lambda row: cross_entropy(row.expand(540, 3), labels), COUNTS.double().log()),
        (lambda row: balanced_cross_entropy(row.expand(540, 3), labels, COUNTS), torch.zeros(3, dtype=torch.float64)),
    ):
        row = best.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(row), row)
        assert gradient.abs().max() < 1e-12


def test_invalid_arguments() -> None:
    with pytest.raises(ValueError, match=r"counts must have shape \(3,\), a count per class, not \(2,\)"):
        balanced_cross_entropy(logits_of(1), torch.tensor([0]), torch.tensor([5, 5]))
    with pytest.raises(ValueError, match="labels range from 3 to 3, but the scores have 3 classes"):
        balanced_cross_entropy(logits_of(1), torch.tensor([3]), COUNTS)


@pytest.mark.parametrize("base", [CrossEntropy(weight=2.0), NCA()], ids=lambda term: term.name)
def test_replaces_the_base_loss(base: Term) -> None:
    """Only if it is active: not in the first task and not with weight 0."""
    logits, labels = logits_of(4), torch.tensor([0, 1, 2, 0])
    output = Output((), torch.zeros(4, 2), logits, torch.tensor(1.0))
    task = Task(index=1, n_old=2, n_new=1)
    step = Step(Batch(torch.empty(0), labels, labels == 2), output, None, task, SeenClasses(torch.empty(0), COUNTS))
    balanced = balanced_cross_entropy(logits, labels, COUNTS).item()
    total, parts = WeightedSum([base, BalancedCrossEntropy(replaces_base_loss=True)], task)(step)
    assert (total.item(), [*parts]) == (pytest.approx(balanced), ["balanced_cross_entropy"])
    total, parts = WeightedSum([base, BalancedCrossEntropy()], task)(step)
    assert total.item() == pytest.approx(balanced + base.weight * base.value(step).item())
    for active_task, weight in ((Task(index=0, n_old=0, n_new=3), 1.0), (task, 0.0)):
        remaining = WeightedSum([base, BalancedCrossEntropy(replaces_base_loss=True, weight=weight)], active_task).terms
        assert [term for term, _ in remaining] == [base]


def test_default_of_each_method() -> None:
    for method, dataset, replaces in (
        ("icarl+balanced", "digits", True),
        ("lucir+balanced", "cifar100", False),
        ("podnet+balanced", "cifar100", True),
        ("podnet+balanced", "digits", False),  # by its preset
        ("der+++balanced", "cifar100", False),
    ):
        term = settings_for(method, dataset).loss["balanced_cross_entropy"]
        assert term == BalancedCrossEntropy(replaces_base_loss=replaces), (method, dataset)


def test_a_base_loss_must_exist() -> None:
    setting = "loss.balanced_cross_entropy.replaces_base_loss"
    with pytest.raises(UserError, match=r"neither loss\.cross_entropy nor loss\.nca"):
        settings_for("icarl-bce+balanced", "cifar100", f"{setting}=true")
    settings_for("icarl-bce+balanced", "cifar100", f"{setting}=false")


def test_icarl_predicts_with_its_classifier() -> None:
    """Balanced cross-entropy removes the bias of the classifier towards new classes."""
    for method, headline in (("icarl", "nme"), ("icarl+cscct", "nme"), ("icarl+balanced", "classifier")):
        assert settings_for(method, "cifar100").predict.predictor == headline
    assert settings_for("icarl+balanced", "cifar100", "predict.predictor=nme").predict.predictor == "nme"
    assert settings_for("icarl+balanced", "digits").predict.predictor == "nme"  # by its preset
