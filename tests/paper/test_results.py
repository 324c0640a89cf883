"""Results of the paper as files."""

import csv
from pathlib import Path

import pytest

from cscct.paper.cells import Request, find, plan_result
from cscct.paper.results import write_result_files
from paper_results import SEEDS, finished


@pytest.mark.parametrize("name", ["table3", "apt-act", "phases"])
def test_files_of_a_result(name: str, tmp_path: Path) -> None:
    plan = finished(name, tmp_path / "runs")
    answer, files = write_result_files(find(name), Request("cpu", seeds=SEEDS), plan, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(files)
    assert len(answer["cells"]) == len(find(name).cells)
    assert "40 classes" in answer["scale_in_words"]
    if name != "table3":
        assert f"{name}.png" in files
        numbers = list(csv.DictReader((tmp_path / "out" / f"{name}.csv").read_text().splitlines()))
        assert len(numbers) == {"apt-act": 2 * 24, "phases": 18 * 6}[name]
        assert all(float(row["mean"]) > 40 for row in numbers)


def test_figure_needs_all_runs(tmp_path: Path) -> None:
    plan = plan_result(find("apt-act"), Request("cpu", seeds=(1,)), tmp_path / "runs")
    answer, files = write_result_files(find("apt-act"), Request("cpu", seeds=(1,)), plan, tmp_path / "out")
    assert files == ["table.json", "table.csv"]
    assert answer["cells"][0]["ours"]["metrics"]["apt"] is None
