"""Means, deviations and paired differences."""

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from cscct.analysis.groups import Group
from cscct.analysis.statistics import AVERAGE, counterpart, paired, spread, summarise
from synthetic import groups_in, make_run


def test_interval_is_that_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(60, 2, 5), rng.normal(58, 2, 5)
    actual = paired(list(a), list(b), "x")
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (actual.low, actual.high) == pytest.approx((interval.low, interval.high))
    assert actual.mean == pytest.approx((a - b).mean())
    assert spread(list(a)).deviation == pytest.approx(a.std(ddof=1))


def test_one_seed_has_no_spread() -> None:
    assert spread([3.0]).deviation is None
    assert paired([3.0], [1.0], "x").low is None


def averages(group: Group) -> list[float]:
    return [float(run.summary[AVERAGE] or 0) for run in group.runs]


def test_reference_is_the_base_method(tmp_path: Path) -> None:
    for method in ("replay", "lucir", "lucir+csc", "icarl+ct"):
        for seed in (1, 2):
            make_run(tmp_path / f"{method}-{seed}", method, seed=seed)
    groups = sorted(groups_in(tmp_path), key=lambda group: group.method != "replay")
    by_method = {group.method: group for group in groups}
    strict = {row.group.method: row for row in summarise(groups)}
    assert [method for method, row in strict.items() if row.gain] == ["lucir+csc"]
    rows = {row.group.method: row for row in summarise(groups, against_first=True)}
    assert rows["replay"].gain is None
    for method, other in {"lucir": "replay", "lucir+csc": "lucir", "icarl+ct": "replay"}.items():
        gain, pairs = rows[method].gain, zip(averages(by_method[method]), averages(by_method[other]), strict=True)
        assert gain.against == other
        assert gain.mean == pytest.approx(fmean(a - b for a, b in pairs))
        assert rows[method].pairs == 2


def test_metrics_use_the_headline_predictor(tmp_path: Path) -> None:
    result = make_run(tmp_path / "a", "icarl")
    (row,) = summarise(groups_in(tmp_path))
    actual = row.metrics[AVERAGE]
    assert actual.mean == result["summary"]["nme"][AVERAGE] != result["summary"]["classifier"][AVERAGE]


def test_undefined_metric_is_none(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir", "digits", done=1, status="running")
    (row,) = summarise(groups_in(tmp_path))
    assert row.metrics["apt"] is None
    assert row.metrics["act"] is not None


def test_counterpart_has_equal_settings(tmp_path: Path) -> None:
    for name, sets in {"a": ("memory.per_class=9",), "b": (), "c": ("loss.less_forget.weight=1.0",)}.items():
        make_run(tmp_path / name, "lucir", "digits", *sets)
    make_run(tmp_path / "d", "lucir+cscct", "digits", "loss.csc.weight=2.0")
    groups = groups_in(tmp_path)
    actual = counterpart(groups[-1], groups)
    assert actual.runs[0].path.name == "b"
    assert counterpart(groups[-1], [groups[0], groups[-1]]) is None
    assert counterpart(actual, groups) is None


def test_counterpart_with_another_predictor(tmp_path: Path) -> None:
    """As iCaRL with +balanced is on CIFAR-100; one that is tested by the same comes first."""
    make_run(tmp_path / "a", "icarl", "digits")
    make_run(tmp_path / "b", "icarl+balanced", "digits", "predict.predictor=classifier")
    groups = groups_in(tmp_path)
    actual = counterpart(groups[-1], groups)
    assert actual is groups[0]
    assert (groups[-1].headline, actual.headline) == ("classifier", "nme")
    make_run(tmp_path / "aa", "icarl", "digits", "predict.predictor=classifier")
    groups = groups_in(tmp_path)
    actual = counterpart(groups[-1], groups)
    assert actual.headline == "classifier"


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    for method, seeds in {"lucir": (2, 3), "lucir+ct": (1, 2)}.items():
        for seed in seeds:
            make_run(tmp_path / f"{method}-{seed}", method, seed=seed)
    row = summarise(groups_in(tmp_path))[1]
    assert row.pairs == 1
    assert row.gain.low is None
