"""Comparison with published results."""

import csv
import io
import json
from pathlib import Path

import pytest

from cscct.paper.comparison import PublishedComparison, as_dicts, compare_with_published, to_csv
from paper_results import finished


def of_method(rows: list[PublishedComparison], method: str) -> PublishedComparison:
    return next(row for row in rows if row.settings.method == method)


def test_means_deviations_and_paired_gains(tmp_path: Path) -> None:
    rows = compare_with_published(finished("table3", tmp_path))
    assert len(rows) == 24
    row = of_method(rows, "lucir+ct").row
    spread = row.metrics["average_incremental_accuracy"]
    assert spread.mean == pytest.approx(52.55)
    assert spread.deviation == pytest.approx(0.1 / 2**0.5)
    assert row.gain.against == "lucir"
    assert row.gain.mean == pytest.approx(1.8)
    assert row.gain.low == pytest.approx(1.8 - 12.7062 * 0.2, rel=1e-3)  # Student's t with one degree of freedom
    assert of_method(rows, "lucir").row.gain is None


def test_a_gain_is_taken_at_equal_settings_only(tmp_path: Path) -> None:
    cells = finished("s2", tmp_path)
    for row in compare_with_published(cells):
        assert (row.row.gain is None) == (row.settings.method == "lucir")
    cells = [(cell, run) for cell, run in cells if cell.variant != "base" or run.settings.memory.per_class != 5]
    alone = [row for row in compare_with_published(cells) if row.settings.memory.per_class == 5]
    assert alone
    assert all(row.row.gain is None for row in alone)


def test_unfinished_runs_do_not_count(tmp_path: Path) -> None:
    cells = finished("tsne", tmp_path)
    path = tmp_path / cells[0][1].name / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    bare, other = compare_with_published(cells)
    assert (bare.row.group.seeds, other.row.group.seeds) == ((2,), (1, 2))
    assert other.row.pairs == 1


def test_published_numbers_are_separate(tmp_path: Path) -> None:
    actual = compare_with_published(finished("table1", tmp_path))
    row = next(b for b in actual if (b.cell.method, b.cell.B, b.cell.C) == ("lucir+cscct", 50, 2))
    assert (row.published_gain, row.cell.printed_gain) == (1.11, 1.13)  # the paper's own contradiction
    (entry,) = as_dicts([row], "cpu")
    assert (entry["ours"]["B"], entry["ours"]["C"], entry["ours"]["seeds"]) == (20, 2, [1, 2])
    assert (entry["paper"]["B"], entry["paper"]["gain"], entry["scale"]) == (50, 1.11, "cpu")
    table = next(csv.DictReader(io.StringIO(to_csv([entry]))))
    mean = entry["ours"]["metrics"]["average_incremental_accuracy"]["mean"]
    assert float(table["ours.metrics.average_incremental_accuracy.mean"]) == pytest.approx(mean, abs=5e-5)
    assert table["ours.seeds"] == "1 2"
