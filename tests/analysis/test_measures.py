"""Measures compared with calculations by hand and with stored results."""

import csv
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from cscct.analysis.groups import group_runs
from cscct.analysis.load import find_runs, read_runs
from cscct.analysis.measures import class_accuracy, class_forgetting, old_new_shares, similarity_of
from cscct.analysis.statistics import paired
from reports import Report, report_fixture  # noqa: F401
from synthetic import read_json


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_forgetting_of_each_class_by_hand() -> None:
    after_1 = np.array([[8, 2], [0, 10]])
    after_2 = np.array([[9, 0, 1], [1, 7, 2], [0, 0, 10]])
    after_3 = np.array([[5, 0, 0, 5], [0, 9, 1, 0], [0, 5, 4, 1], [0, 0, 0, 10]])
    # Class 0: 80, 90, then 50. Class 1: 100, 70, then 90. Class 2: 100, then 40. Class 3 is new.
    assert class_forgetting([after_1, after_2, after_3]).tolist() == [40.0, 10.0, 60.0]


def test_forgetting_can_be_negative_and_a_class_without_images_has_none() -> None:
    actual = class_forgetting([np.array([[1, 1], [0, 0]]), np.array([[2, 0, 0], [0, 0, 0], [0, 0, 2]])])
    assert actual[0] == -50.0
    assert np.isnan(actual[1])
    assert np.isnan(class_accuracy(np.zeros((1, 1)))[0])


def test_shares_of_old_and_new_by_hand() -> None:
    confusion = np.array([[6, 1, 3], [2, 6, 2], [1, 1, 8]])  # two old classes, one new
    assert old_new_shares(confusion, 2).tolist() == [[75.0, 25.0], [20.0, 80.0]]


def test_similarity_blocks(report: Report) -> None:
    group = group_runs(read_runs(find_runs([report.runs / "lucir-seed1"]), lambda _: None))[0]
    matrix, run = similarity_of(group), group.runs[0]
    assert matrix.shape == (6, 8)
    assert np.array_equal(matrix[:2, :4], run.tensors(1)["similarity"].astype(float))
    assert np.array_equal(matrix[4:, :8], run.tensors(3)["similarity"].astype(float))
    assert np.isnan(matrix[:2, 4:]).all()
    assert np.isnan(matrix[2:4, 6:]).all()
    assert np.isfinite(matrix).sum() == 2 * (4 + 6 + 8)


def results(report: Report, method: str) -> list[Any]:
    return [read_json(report.runs / f"{method}-seed{seed}" / "result.json") for seed in (1, 2)]


def test_tables_match_the_results(report: Report) -> None:
    summary = {row["group"]: row for row in rows(report.out / "summary.csv")}
    assert list(summary) == ["lucir", "lucir, 2 of 4 tasks", "lucir+cscct"]
    for method in ("lucir", "lucir+cscct"):
        for name, first in results(report, method)[0]["summary"]["classifier"].items():
            values = [first, results(report, method)[1]["summary"]["classifier"][name]]
            assert float(summary[method][f"{name}_mean"]) == pytest.approx(fmean(values), abs=5e-5)
            assert float(summary[method][f"{name}_sd"]) == pytest.approx(stdev(values), abs=5e-5)
    for row in rows(report.out / "runs.csv"):
        result = read_json(Path(row["folder"]) / "result.json")
        assert float(row["nme_apt"]) == pytest.approx(result["summary"]["nme"]["apt"], abs=5e-5)
        assert (int(row["seed"]), row["status"]) == (result["seed"], result["status"])


def test_gain_is_paired_by_seed(report: Report) -> None:
    row = next(row for row in rows(report.out / "summary.csv") if row["group"] == "lucir+cscct")
    ours, theirs = (
        [result["summary"]["classifier"]["average_incremental_accuracy"] for result in results(report, method)]
        for method in ("lucir+cscct", "lucir")
    )
    gain = paired(ours, theirs, "lucir")
    assert (row["against"], row["pairs"]) == ("lucir", "2")
    actual = [float(row[name]) for name in ("gain", "gain_low", "gain_high")]
    assert actual == pytest.approx([gain.mean, gain.low, gain.high], abs=5e-5)
    assert f"{gain.mean:+.2f}".replace("-", "−") in report.html
    unfinished = next(row for row in rows(report.out / "summary.csv") if "of 4" in row["group"])
    assert unfinished["gain"] == ""


def test_figures_contain_means_over_seeds(report: Report) -> None:
    first, second = results(report, "lucir")
    cells = {(r["after_task"], r["on_task"]): r for r in rows(report.out / "figures" / "matrix-lucir.csv")}
    assert len(cells) == 10
    for (t, k), row in cells.items():
        pair = [result["matrix"]["classifier"][int(t) - 1][int(k) - 1] for result in (first, second)]
        assert float(row["accuracy_mean"]) == pytest.approx(fmean(pair), abs=5e-5)
        assert float(row["accuracy_sd"]) == pytest.approx(stdev(pair), abs=5e-5)
    curve = [r for r in rows(report.out / "figures" / "accuracy.csv") if r["group"] == "lucir"]
    assert [int(r["classes_seen"]) for r in curve] == [4, 6, 8, 10]
    means = [
        fmean(pair)
        for pair in zip(*([t["accuracy"]["classifier"] for t in x["tasks"]] for x in (first, second)), strict=True)
    ]
    assert [float(r["accuracy_mean"]) for r in curve] == pytest.approx(means, abs=5e-5)


def test_files_of_forgetting_and_losses(report: Report) -> None:
    groups = group_runs(read_runs(find_runs([report.runs]), lambda _: None))
    lucir = next(group for group in groups if group.label == "lucir")
    each = [class_forgetting([run.confusion(t) for t in range(4)]) for run in lucir.runs]
    stored = rows(report.out / "figures" / "forgetting-lucir.csv")
    means = sorted(np.mean(each, axis=0).tolist(), reverse=True)
    assert [float(row["forgetting_mean"]) for row in stored] == pytest.approx(means, abs=5e-5)
    assert {row["class"] for row in stored} == set(lucir.runs[0].classes[:8])
    losses = rows(report.out / "figures" / "losses-lucir+cscct.csv")
    assert len(losses) == 4 * 2
    assert losses[0]["csc_mean"] == ""  # not in the first task
    assert float(losses[-1]["csc_mean"]) < 0
    part = [run.epochs()[-1]["losses"]["csc"] for run in groups[-1].runs]
    assert float(losses[-1]["csc_mean"]) == pytest.approx(fmean(part), rel=1e-3)
