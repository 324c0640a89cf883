"""The table of results in its forms."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from cscct.analysis.statistics import METRICS, summarise
from cscct.analysis.tables import ResultsTable, csv_text, results_table
from synthetic import groups_in, make_run


@pytest.fixture
def table(tmp_path: Path) -> ResultsTable:
    """A sweep over the weight of CSC, with a base; two seeds."""
    for seed in (1, 2):
        make_run(tmp_path / f"lucir-{seed}", "lucir", seed=seed)
        for weight in (1.0, 2.5):
            make_run(tmp_path / f"{weight}-{seed}", "lucir+csc", "digits", f"loss.csc.weight={weight}", seed=seed)
    return results_table(groups_in(tmp_path))


def test_csv_has_the_columns_of_a_comparison_and_the_settings_that_differ(table: ResultsTable) -> None:
    lines = list(csv.reader(io.StringIO(table.to_csv())))
    metrics = [f"{name}_{part}" for name in METRICS for part in ("mean", "sd")]
    first = ["method", "headline", "seeds", *metrics, "against", "gain", "gain_low", "gain_high"]
    other = ["other_prediction", *(f"other_{name}" for name in metrics)]
    fitted = [f"{head}_{name}" for head in ("lda", "ridge") for name in metrics]
    assert lines[0] == [*first, "loss.csc.weight", "pairs", "group", *other, *fitted]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert [(row["method"], row["loss.csc.weight"], row["against"]) for row in rows] == [
        ("lucir", "", ""),
        ("lucir+csc", "1.0", "lucir"),
        ("lucir+csc", "2.5", "lucir"),
    ]
    exact = table.rows[1].gain
    assert exact is not None
    assert float(rows[1]["gain"]) == pytest.approx(exact.mean, abs=5e-5)
    assert rows[0]["gain"] == ""
    numbers = [cell for row in rows for name, cell in row.items() if name.endswith(("_mean", "_sd")) and cell]
    assert all(len(cell.partition(".")[2]) <= 4 for cell in numbers)


def test_methods_alone_need_no_columns_of_settings(tmp_path: Path) -> None:
    for method in ("lucir", "podnet", "podnet+cscct"):
        make_run(tmp_path / method, method)
    assert results_table(groups_in(tmp_path)).settings == ()


def test_small_numbers_keep_their_digits() -> None:
    assert csv_text([["a", 12.345678901234, 0.0000123456, float("nan"), None, 3]]) == "a,12.3457,1.235e-05,,,3\n"


def test_json_has_the_structure_of_a_comparison(table: ResultsTable) -> None:
    found = json.loads(table.to_json())
    assert (found["dataset"], found["seeds"]) == ("digits", [1, 2])
    assert [row["settings"] for row in found["methods"]] == [{"loss.csc.weight": w} for w in (None, 1.0, 2.5)]
    row = found["methods"][1]
    assert (row["method"], row["headline"], row["seeds"], row["pairs"]) == ("lucir+csc", "classifier", 2, 2)
    assert set(row["metrics"]) == set(METRICS)
    assert set(row["metrics"]["apt"]) == {"mean", "deviation"}
    assert set(row["gain"]) == {"against", "mean", "low", "high"}


def test_markdown_is_aligned_and_rounded(table: ResultsTable) -> None:
    lines = table.to_markdown().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + 3
    mean = table.rows[0].metrics["apt"]
    assert mean is not None
    assert f"| {mean.mean:.2f} ± {mean.deviation:.2f} " in lines[2]
    assert repr(table) == table.to_markdown()


def test_latex_is_escaped(tmp_path: Path) -> None:
    for per_class in (3, 4):
        make_run(tmp_path / str(per_class), "lucir", "digits", f"memory.per_class={per_class}")
    text = results_table(groups_in(tmp_path)).to_latex()
    assert r"memory.per\_class" in text
    assert r"\begin{tabular}{llrrrrrr}" in text
    assert text.count(r" \\") == 3


def test_notebooks_get_html(table: ResultsTable) -> None:
    assert table._repr_html_().count("<tr>") == 1 + 3
    assert "<td>lucir+csc</td>" in table._repr_html_()


def test_files(table: ResultsTable, tmp_path: Path) -> None:
    names = table.write(tmp_path / "out", "compare")
    assert names == ["compare.json", "compare.csv", "results.tex", "results.md"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(names)
    assert list(table.rows) == summarise([row.group for row in table.rows])
