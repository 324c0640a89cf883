"""Reports of learning steps."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from cscct import IncrementalClassifier, UserError
from cscct.classifier.evaluation import FittedClasses, accuracies
from cscct.classifier.report import LearnReport, new_confusions, similar_classes
from cscct.features import PREDICTORS, ClassStatistics


def statistics(*counts: int, width: int = 16) -> dict[str, ClassStatistics]:
    """Statistics of classes along different axes."""
    draws = torch.Generator().manual_seed(0)
    rows = [5 * torch.eye(width)[i] + torch.randn(n, width, generator=draws) for i, n in enumerate(counts)]
    return {"abcdefgh"[i]: ClassStatistics.of(features) for i, features in enumerate(rows)}


@pytest.mark.parametrize("name", ["ncm", "lda", "ridge"])
def test_untested_classes_have_zero_counts(name: str) -> None:
    """One image; more images than dimensions."""
    classes = statistics(12, 1, 40)
    accuracy = accuracies(
        FittedClasses.of(PREDICTORS[name](), classes, images=False).evaluate({}).confusion(list(classes))
    )
    assert accuracy["b"] == accuracy["c"] == [0, 0]
    assert accuracy["a"][1] == 12


def test_a_single_class_has_no_accuracy() -> None:
    model = IncrementalClassifier(None).learn(np.eye(6), ["a"] * 6)
    assert model.report_.after == {"a": [0, 0]}


def test_only_new_confusions_are_reported() -> None:
    before = {"a": Counter(a=4, b=1), "b": Counter(b=5)}
    after = {"a": Counter(a=3, b=1, c=1), "b": Counter(b=5), "c": Counter(c=2, a=3)}
    assert new_confusions(before, after) == [("c", "a", 3), ("a", "c", 1)]


def test_most_similar_classes_come_first() -> None:
    rows = {"old": [1.0, 0, 0], "near": [1.0, 0.2, 0], "far": [0, 0, 1.0], "new": [1.0, 0.3, 0]}
    stats = {label: ClassStatistics.of(torch.tensor([row])) for label, row in rows.items()}
    assert [label for label, _ in similar_classes(stats, ["new"])["new"]] == ["near", "old", "far"]
    assert similar_classes({"new": stats["new"]}, ["new"]) == {"new": []}


def test_json_round_trip() -> None:
    report = LearnReport(new=["a"], after={"a": [1, 2]}, confusions=[("a", "b", 1)], similar={"a": [("b", 0.5)]})
    assert LearnReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report
    with pytest.raises(UserError, match="report in the model is damaged"):
        LearnReport.from_dict({"after": 3})


def test_renamed_replaces_all_labels() -> None:
    report = LearnReport(["a"], ["b"], [], {"a": 1, "b": 2}, {"b": [1, 2]}, {"a": [1, 1], "b": [1, 2]})
    report = replace(report, confusions=[("b", "a", 1)], similar={"a": [("b", 0.5)]})
    swapped = report.renamed({"a": "b", "b": "a"})
    assert swapped != report
    assert '"a"' not in json.dumps(report.renamed({"a": "c"}).as_dict())
    assert swapped.renamed({"a": "b", "b": "a"}) == report
