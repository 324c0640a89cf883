"""The figures under a comparison."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cscct.analysis.statistics import as_csv, compare, paired, spread


def result(accuracy: float, headline: str = "classifier") -> dict[str, Any]:
    summary = {
        "average_incremental_accuracy": accuracy,
        "last_accuracy": accuracy - 5,
        "apt": None,
        "act": 80.0,
        "forgetting": None,
    }
    other = {**summary, "average_incremental_accuracy": 1.0}
    return {"headline": headline, "summary": {headline: summary, "other": other}}


def test_interval_is_that_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(60, 2, 5), rng.normal(58, 2, 5)
    found = paired(list(a), list(b), "x")
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.mean == pytest.approx((a - b).mean())
    assert spread(list(a)).deviation == pytest.approx(a.std(ddof=1))


def test_one_seed_has_no_spread() -> None:
    assert spread([3.0]).deviation is None
    assert paired([3.0], [1.0], "x").low is None


def test_a_method_is_set_against_its_own_base() -> None:
    values = {"replay": (50, 52), "lucir": (60, 61), "lucir+csc": (61, 63), "icarl+ct": (55, 56)}
    rows = {r.method: r for r in compare({m: [result(v) for v in pair] for m, pair in values.items()})}
    assert rows["replay"].gain is None
    assert [(rows[m].gain.against, rows[m].gain.mean) for m in ("lucir", "lucir+csc", "icarl+ct")] == [
        ("replay", 9.5),
        ("lucir", 1.5),
        ("replay", 4.5),
    ]
    assert rows["lucir"].metrics["apt"] is None


def test_each_method_is_judged_by_its_own_headline() -> None:
    rows = compare({"lucir": [result(60)], "icarl": [result(55, "nme")]})
    assert rows[1].metrics["average_incremental_accuracy"].mean == 55
    table = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [(row["method"], row["headline"], row["against"]) for row in table] == [
        ("lucir", "classifier", ""),
        ("icarl", "nme", "lucir"),
    ]
    assert float(table[1]["gain"]) == -5
