"""Ours beside the paper's."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cscct.analysis.tables import compare_with_published, flat_csv, gain, published_json, rows_json, rows_of
from cscct.paper.cells import Cell, Request, find, plan_exhibit
from cscct.paper.exhibits import write_exhibit
from cscct.studies.plan import PlannedRun

SEEDS = (1, 2)


def result(planned: PlannedRun, accuracy: float, tasks: int = 6) -> dict[str, Any]:
    """As a run would leave it, with every accuracy the same."""
    headline = planned.settings.predict.headline
    summary = {
        "average_incremental_accuracy": accuracy,
        "last_accuracy": accuracy - 1,
        "apt": accuracy - 2,
        "act": accuracy + 2,
        "forgetting": 3.0,
    }
    return {
        "status": "finished",
        "method": planned.settings.method,
        "headline": headline,
        "summary": {headline: summary, "other": dict.fromkeys(summary, 0.0)},
        "tasks": [
            {"task": t, "classes": ["a"] * 4, "accuracy": {headline: accuracy - t}, "seconds": 1.0}
            for t in range(tasks)
        ],
    }


def finished(name: str, out: Path, scale: str = "cpu") -> list[tuple[Cell, PlannedRun]]:
    """All runs of an exhibit; CSC gives one point, CT two, a higher seed half a point, CT's less at seed 2."""
    plan = plan_exhibit(find(name), Request(scale, seeds=SEEDS), out)
    for cell, planned in plan:
        added = {"base": 0.0, "CSC": 1.0, "CT": 2.0, "CSCCT": 3.0}[cell.variant]
        wobble = 0.4 if "CT" in cell.variant and planned.settings.seed == 2 else 0.0
        planned.folder.create(planned.settings)
        planned.folder.write_result(result(planned, 50 + added + planned.settings.seed / 2 - wobble))
    return plan


def test_means_deviations_and_paired_gains(tmp_path: Path) -> None:
    rows = rows_of([planned for _, planned in finished("table3", tmp_path)])
    assert len(rows) == 24
    row = next(one for one in rows if one.settings.method == "lucir+ct")
    spread = row.spread("average_incremental_accuracy")
    assert spread is not None
    assert spread.mean == pytest.approx(52.55)
    assert spread.deviation == pytest.approx(0.1 / 2**0.5)
    difference = gain(row, rows)
    assert difference is not None
    assert difference.against == "lucir"
    assert difference.mean == pytest.approx(1.8)
    assert difference.low == pytest.approx(1.8 - 12.7062 * 0.2, rel=1e-3)  # Student's t with one degree of freedom
    bare = next(one for one in rows if one.settings.method == "lucir")
    assert gain(bare, rows) is None


def test_a_gain_is_taken_at_equal_settings_only(tmp_path: Path) -> None:
    plan = [planned for _, planned in finished("s2", tmp_path)]
    rows = rows_of(plan)
    for row in rows:
        difference = gain(row, rows)
        assert (difference is None) == (row.settings.method == "lucir")
    alone = [row for row in rows if row.settings.method == "lucir+cscct" or row.settings.memory.per_class != 5]
    lonely = next(row for row in alone if row.settings.memory.per_class == 5)
    assert gain(lonely, alone) is None


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    rows = rows_of([planned for _, planned in finished("tsne", tmp_path)])
    bare, other = rows
    difference = gain(other, [replace(bare, results={2: bare.results[2]}), other])
    assert difference is not None
    assert difference.low is None  # one pair
    assert gain(other, [replace(bare, results={}), other]) is None


def test_what_is_not_finished_does_not_count(tmp_path: Path) -> None:
    plan = finished("tsne", tmp_path)
    (tmp_path / plan[0][1].name / "result.json").write_text(json.dumps({"status": "running", "tasks": []}))
    rows = rows_of([planned for _, planned in plan])
    assert [sorted(row.results) for row in rows] == [[2], [1, 2]]


def test_the_papers_numbers_stand_beside_and_apart(tmp_path: Path) -> None:
    found = compare_with_published(finished("table1", tmp_path))
    one = next(b for b in found if (b.cell.method, b.cell.B, b.cell.C) == ("lucir+cscct", 50, 2))
    assert (one.published_gain, one.cell.printed_gain) == (1.11, 1.13)  # the paper's own contradiction
    entry = published_json([one], "cpu")[0]
    assert entry["ours"]["B"] == 20
    assert entry["ours"]["C"] == 2
    assert entry["ours"]["seeds"] == [1, 2]
    assert entry["paper"]["B"] == 50
    assert entry["paper"]["gain"] == 1.11
    assert entry["scale"] == "cpu"
    table = next(csv.DictReader(io.StringIO(flat_csv([entry]))))
    assert float(table["ours.metrics.average_incremental_accuracy.mean"]) == pytest.approx(
        entry["ours"]["metrics"]["average_incremental_accuracy"]["mean"]
    )
    assert table["ours.seeds"] == "1 2"


@pytest.mark.parametrize("name", ["table3", "apt-act", "phases"])
def test_files_of_an_exhibit(name: str, tmp_path: Path) -> None:
    plan = finished(name, tmp_path / "runs")
    answer, files = write_exhibit(find(name), Request("cpu", seeds=SEEDS), plan, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(files)
    assert len(answer["cells"]) == len(find(name).cells)
    assert "40 classes" in answer["scale_in_words"]
    if name != "table3":
        assert f"{name}.png" in files
        numbers = list(csv.DictReader((tmp_path / "out" / f"{name}.csv").read_text().splitlines()))
        assert len(numbers) == {"apt-act": 2 * 24, "phases": 18 * 6}[name]
        assert all(float(row["mean"]) > 40 for row in numbers)


def test_a_picture_waits_for_all_its_runs(tmp_path: Path) -> None:
    plan = plan_exhibit(find("apt-act"), Request("cpu", seeds=(1,)), tmp_path / "runs")
    answer, files = write_exhibit(find("apt-act"), Request("cpu", seeds=(1,)), plan, tmp_path / "out")
    assert files == ["table.json", "table.csv"]
    assert answer["cells"][0]["ours"]["metrics"]["apt"] is None


def test_rows_of_a_sweep_as_json(tmp_path: Path) -> None:
    rows = rows_of([planned for _, planned in finished("tsne", tmp_path)])
    bare, other = rows_json(rows)
    assert bare["gain"] is None
    assert other["gain"]["mean"] == pytest.approx(1.0)
    assert other["metrics"]["forgetting"]["mean"] == 3.0
