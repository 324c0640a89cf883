"""Tables on a terminal."""

from pathlib import Path

import pytest
from rich.console import Console

from cscct.analysis.tables import results_table
from cscct.studies.plan import summarize_plan
from cscct.ui import printing
from paper_results import result
from planning import small_plan
from synthetic import groups_in, make_run


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "_console", lambda: Console(highlight=False, width=80))


@pytest.mark.usefixtures("narrow")
def test_names_and_numbers_are_not_truncated_at_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("lucir", "lucir+csc", "lucir+cscct", "icarl+cscct"):
        for seed in (1, 2):
            make_run(tmp_path / f"{method}-{seed}", method, seed=seed)
    table = results_table(groups_in(tmp_path), against_first=True)
    printing.print_results(table, "A comparison")
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    columns = shown.split()
    for row in table.rows:
        assert columns.count(row.group.method) >= 2  # once in each part
        assert all(f"{value.mean:.2f}" in shown for value in row.metrics.values() if value)


@pytest.mark.usefixtures("narrow")
def test_groups_of_a_sweep_are_distinct_at_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for weight in (1, 2):
        for size in (3, 4):
            sets = (f"loss.csc.weight={weight}.0", f"memory.per_class={size}")
            make_run(tmp_path / f"{weight}-{size}", "lucir+csc", "digits", *sets)
    printing.print_results(results_table(groups_in(tmp_path)), "A sweep")
    text = " ".join(capsys.readouterr().out.split())
    for weight in (1, 2):
        assert text.count(f"csc.weight={weight}") >= 2
    assert "…" not in text


@pytest.mark.usefixtures("narrow")
def test_a_plan_shows_measured_times_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = small_plan(tmp_path, "lucir", seeds=(1, 2))
    printing.print_plan(summarize_plan(plan, 1), "A plan")
    assert "The time left is unknown" in capsys.readouterr().out
    plan[0].begin()
    plan[0].folder.write_result(result(plan[0], 50.0))
    printing.print_plan(summarize_plan(plan, 1), "A plan")
    assert "About 0:06 left with 1 runs at a time" in capsys.readouterr().out
