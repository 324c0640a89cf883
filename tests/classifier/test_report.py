"""What a step of learning did."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from cscct import UserError
from cscct.classifier.report import LearnReport, accuracies, cross_validate, new_confusions, similar_classes
from cscct.predictors import ClassStatistics, ncm


def statistics(*counts: int, width: int = 16) -> dict[str, ClassStatistics]:
    """Classes along different axes."""
    draws = torch.Generator().manual_seed(0)
    rows = [5 * torch.eye(width)[i] + torch.randn(n, width, generator=draws) for i, n in enumerate(counts)]
    return {"abcdefgh"[i]: ClassStatistics.of(one) for i, one in enumerate(rows)}


def test_each_image_is_predicted_once_without_it() -> None:
    found = cross_validate(statistics(12, 3, 2), ncm)
    assert {label: counts.total() for label, counts in found.items()} == {"a": 12, "b": 3, "c": 2}
    seen: list[int] = []

    def counting(classes):  # type: ignore[no-untyped-def]
        seen.append(sum(one.count for one in classes))
        return ncm(classes)

    cross_validate(statistics(10, 10), counting)
    assert seen == [16] * 5


def test_classes_that_cannot_be_tested_are_none_of_none() -> None:
    found = accuracies(cross_validate(statistics(12, 1, 40), ncm))  # one image; more images than dimensions
    assert found["b"] == found["c"] == [0, 0]
    assert found["a"][1] == 12


def test_confusions_are_those_that_are_new() -> None:
    before = {"a": Counter(a=4, b=1), "b": Counter(b=5)}
    after = {"a": Counter(a=3, b=1, c=1), "b": Counter(b=5), "c": Counter(c=2, a=3)}
    assert new_confusions(before, after) == [("c", "a", 3), ("a", "c", 1)]


def test_the_nearest_old_classes_come_first() -> None:
    rows = {"old": [1.0, 0, 0], "near": [1.0, 0.2, 0], "far": [0, 0, 1.0], "new": [1.0, 0.3, 0]}
    made = {label: ClassStatistics.of(torch.tensor([row])) for label, row in rows.items()}
    assert [label for label, _ in similar_classes(made, ["new"])["new"]] == ["near", "old", "far"]
    assert similar_classes({"new": made["new"]}, ["new"]) == {"new": []}


def test_reports_pass_through_json() -> None:
    report = LearnReport(new=["a"], after={"a": [1, 2]}, confusions=[("a", "b", 1)], similar={"a": [("b", 0.5)]})
    assert LearnReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report
    with pytest.raises(UserError, match="report in the model is damaged"):
        LearnReport.from_dict({"after": 3})


def test_labels_are_renamed_everywhere() -> None:
    report = LearnReport(["a"], ["b"], [], {"a": 1, "b": 2}, {"b": [1, 2]}, {"a": [1, 1], "b": [1, 2]})
    report = replace(report, confusions=[("b", "a", 1)], similar={"a": [("b", 0.5)]})
    swapped = report.renamed({"a": "b", "b": "a"})
    assert swapped != report
    assert '"a"' not in json.dumps(report.renamed({"a": "c"}).as_dict())
    assert swapped.renamed({"a": "b", "b": "a"}) == report
