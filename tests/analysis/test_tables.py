"""The table of results."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from scipy import stats

from cscct.analysis.statistics import AVERAGE, METRICS, summarise
from cscct.analysis.tables import ResultsTable, results_table
from cscct.errors import UserError
from synthetic import groups_in, make_run


@pytest.fixture
def table(tmp_path: Path) -> ResultsTable:
    """Table of a base method and a sweep over the weight of CSC, two seeds."""
    for seed in (1, 2):
        make_run(tmp_path / f"lucir-{seed}", "lucir", seed=seed)
        for weight in (1.0, 2.5):
            make_run(tmp_path / f"{weight}-{seed}", "lucir+csc", "digits", f"loss.csc.weight={weight}", seed=seed)
    return results_table(groups_in(tmp_path))


def test_csv_columns(table: ResultsTable) -> None:
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
    assert float(rows[1]["gain"]) == pytest.approx(exact.mean, abs=5e-5)
    assert rows[0]["gain"] == ""
    numbers = [cell for row in rows for name, cell in row.items() if name.endswith(("_mean", "_sd")) and cell]
    assert all(len(cell.partition(".")[2]) <= 4 for cell in numbers)


def test_methods_with_default_settings_have_no_setting_columns(tmp_path: Path) -> None:
    for method in ("lucir", "podnet", "podnet+cscct"):
        make_run(tmp_path / method, method)
    assert results_table(groups_in(tmp_path)).settings == ()


def test_json_structure(table: ResultsTable) -> None:
    stored = json.loads(table.to_json())
    assert (stored["dataset"], stored["seeds"]) == ("digits", [1, 2])
    assert [row["settings"] for row in stored["methods"]] == [{"loss.csc.weight": w} for w in (None, 1.0, 2.5)]
    row = stored["methods"][1]
    assert (row["method"], row["headline"], row["seeds"], row["pairs"]) == ("lucir+csc", "classifier", 2, 2)
    assert set(row["metrics"]) == set(METRICS)
    assert set(row["metrics"]["apt"]) == {"mean", "deviation"}
    assert set(row["gain"]) == {"against", "mean", "low", "high"}


def test_markdown_is_aligned_and_rounded(table: ResultsTable) -> None:
    lines = table.to_markdown().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + 3
    mean = table.rows[0].metrics["apt"]
    assert f"| {mean.mean:.2f} ± {mean.deviation:.2f} " in lines[2]
    assert repr(table) == table.to_markdown()


def test_latex_is_escaped(tmp_path: Path) -> None:
    for per_class in (3, 4):
        make_run(tmp_path / str(per_class), "lucir", "digits", f"memory.per_class={per_class}")
    text = results_table(groups_in(tmp_path)).to_latex()
    assert r"memory.per\_class" in text
    assert r"\begin{tabular}{llrrrrrrr}" in text
    assert text.count(r" \\") == 3


def test_written_files(table: ResultsTable, tmp_path: Path) -> None:
    names = table.write(tmp_path / "out", "compare")
    assert names == ["compare.json", "compare.csv", "results.tex", "results.md"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(names)
    assert list(table.rows) == summarise([row.group for row in table.rows])


def test_frame_has_the_columns_of_the_csv_file_and_all_digits(table: ResultsTable) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = table.to_frame()
    assert list(frame.columns) == next(csv.reader(io.StringIO(table.to_csv())))
    assert frame["method"].tolist() == ["lucir", "lucir+csc", "lucir+csc"]
    assert frame["loss.csc.weight"].tolist()[1:] == [1.0, 2.5]
    gain, apt = table.rows[1].gain, table.rows[0].metrics["apt"]
    assert frame["gain"][1] == gain.mean
    assert frame["apt_mean"][0] == apt.mean
    assert frame["gain"].isna().tolist() == [True, False, False]
    assert frame[[f"{name}_mean" for name in METRICS]].dtypes.eq("float64").all()


def test_frame_without_pandas_gives_an_install_hint(table: ResultsTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install 'cscct\[pandas\]', or in a clone: pip install -e '\.\[pandas\]'"):
        table.to_frame()


def test_curves_of_a_table(table: ResultsTable) -> None:
    axes = Figure().add_subplot()
    assert table.plot(ax=axes) is axes
    assert [line.get_label() for line in axes.get_lines()] == [row.group.label for row in table.rows]
    assert list(axes.get_lines()[0].get_xdata()) == [4, 6, 8, 10]
    assert len(axes.collections) == len(table.rows)  # bands over seeds
    assert axes.get_legend() is not None


@pytest.mark.parametrize("metric", [AVERAGE, "forgetting"])
def test_bars_of_a_table_have_confidence_intervals(table: ResultsTable, metric: str) -> None:
    axes = table.plot("bars", metric=metric, ax=Figure().add_subplot())
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.group.label for row in table.rows]
    for bar, lines, row in zip(axes.patches, axes.collections, table.rows, strict=True):
        values = [run.summary[metric] for run in row.group.runs]
        mean = sum(values) / 2
        assert bar.get_width() == pytest.approx(mean)
        low, high = stats.t.interval(0.95, 1, loc=mean, scale=stats.sem(values))
        (ends,) = lines.get_segments()
        assert ends[:, 0].tolist() == pytest.approx([low, high])
    assert metric.replace("_", " ") in axes.get_xlabel()


def test_plot_of_one_seed_and_an_unfinished_group(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "podnet", done=1, status="running")
    table = results_table(groups_in(tmp_path))
    axes = table.plot("bars", metric="apt", ax=Figure().add_subplot())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lucir"]  # APT needs two tasks
    assert not axes.collections


def test_a_new_figure_is_created_without_axes(table: ResultsTable) -> None:
    import matplotlib.pyplot as plt

    for kind in ("curves", "bars"):
        figure = table.plot(kind).figure
        assert plt.fignum_exists(figure.number)
        plt.close(figure)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"kind": "curve"}, "'curves', 'bars'"), ({"metric": "x"}, "'apt'")]
)
def test_unknown_plots_are_rejected(table: ResultsTable, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        table.plot(**arguments)
