"""Comparisons, sweeps, results of the paper and reports from Python."""

import json
from pathlib import Path
from typing import Any

import pytest

import cscct
from cscct.errors import RunFailed, UserError
from cscct.runs.folder import RunFolder
from paper_results import SEEDS, finished

SMALL = {"train.epochs": 1, "data.train_per_class": 12, "data.classes": 4, "B": 2, "C": 2, "runtime.threads": 1}
STUDY: dict[str, Any] = {
    "dataset": "digits",
    "methods": ["replay", "replay+ct"],
    "seeds": [1],
    "set": {**SMALL, "train.epochs": 3},
    "grid": {"memory.per_class": [2, 5]},
}


def test_a_comparison_is_a_table(tmp_path: Path) -> None:
    table = cscct.compare(["lucir", "lucir+cscct"], "digits", seeds=range(1, 3), settings=SMALL, out=tmp_path / "c")
    rows = table.as_dict()["methods"]
    assert [row["method"] for row in rows] == ["lucir", "lucir+cscct"]
    assert rows[1]["gain"]["against"] == "lucir"
    assert {len(text.splitlines()) for text in (table.to_csv(), table.to_markdown())} == {3, 4}
    assert r"\begin{tabular}" in table.to_latex()
    assert "<table>" in table._repr_html_()
    assert json.loads((tmp_path / "c" / "compare.json").read_text()) == table.as_dict()
    assert (tmp_path / "c" / "curves.png").is_file()
    alone = cscct.run("lucir", "digits", seed=2, settings=SMALL, out=tmp_path / "alone")
    stored = RunFolder(tmp_path / "c" / "lucir-seed2").result()
    assert stored["weights_sha256"] == alone.result["weights_sha256"]


class Recorder:
    """A listener that records which runs started."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int, int]] = []

    def run_started(self, settings: Any, tasks: Any, images: int) -> None:
        self.started.append((settings.method, settings.memory.per_class, settings.train.epochs))


def test_sweep_runs_every_combination_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder()
    options: dict[str, Any] = {"settings": {"train.epochs": 1}, "jobs": 1, "listeners": [recorder]}
    table = cscct.sweep(STUDY, **options)
    combinations = [(method, size, 1) for method in ("replay", "replay+ct") for size in (2, 5)]
    assert recorder.started == combinations
    rows = table.as_dict()["methods"]
    assert [(row["method"], row["settings"]["memory.per_class"], 1) for row in rows] == combinations
    assert [row["gain"]["against"] if row["gain"] else None for row in rows] == [None, None, "replay", "replay"]
    folder = tmp_path / "runs" / "sweep-digits"
    assert json.loads((folder / "sweep.json").read_text()) == json.loads(table.to_json())
    again = cscct.sweep(STUDY, out=folder, **options)
    assert again.as_dict() == table.as_dict()
    assert recorder.started == combinations  # finished runs are only read


def test_failed_runs_raise_after_the_results_are_written(tmp_path: Path) -> None:
    study = {**STUDY, "methods": ["replay"], "grid": {"loss.cross_entropy.weight": [1, 1e39]}}
    with pytest.raises(RunFailed, match=r"1 of 2 runs failed\..*cross_entropy became"):
        cscct.sweep(study, settings={"train.epochs": 1}, jobs=1, out=tmp_path / "s")
    rows = json.loads((tmp_path / "s" / "sweep.json").read_text())["methods"]
    assert [row["seeds"] for row in rows] == [1, 0]


def test_reproduce_returns_measured_and_published_numbers(tmp_path: Path) -> None:
    planned = finished("table3", tmp_path / "p")
    content = cscct.reproduce("table3", scale="cpu", seeds=SEEDS, out=tmp_path / "p")
    assert content == json.loads((tmp_path / "p" / "table3" / "table.json").read_text())
    assert [cell["ours"]["seeds"] for cell in content["cells"]] == [list(SEEDS)] * (len(planned) // len(SEEDS))


def test_report_returns_the_path_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [cscct.run(method, "digits", settings=SMALL, out=tmp_path / method).path for method in ("replay", "icarl")]
    assert cscct.report(runs[0]) == runs[0] / "report" / "index.html"
    page = cscct.report(map(str, runs), title="Two methods")
    assert page == Path("report") / "index.html"
    assert "<h1>Two methods</h1>" in page.read_text()
    assert cscct.report(runs, tmp_path / "other").is_file()


def test_no_public_name_is_hidden_by_a_module() -> None:
    """Importing a module sets the attribute of its package with the same name."""
    root = Path(cscct.__file__).parent
    assert len(cscct.__all__) > 15
    assert [name for name in cscct.__all__ if (root / name).exists() or (root / f"{name}.py").exists()] == []


def test_invalid_arguments_are_user_errors(tmp_path: Path) -> None:
    pair = ["lucir", "icarl"]
    calls: list[tuple[Any, str]] = [
        (lambda: cscct.compare("lucir", "digits"), "methods must be a list"),
        (lambda: cscct.compare(pair, "digits", jobs=0), "jobs must be at least 1, not 0"),
        (lambda: cscct.compare(["lucri", "icarl"], "digits", out=tmp_path / "c"), "did you mean 'lucir'"),
        (lambda: cscct.compare(pair, "digits", listeners=[3], out=tmp_path / "c"), "no method of a listener"),
        (lambda: cscct.sweep({**STUDY, "method": "lucir"}), "did you mean 'methods'"),
        (lambda: cscct.sweep(STUDY, jobs=0), "jobs must be at least 1, not 0"),
        (lambda: cscct.sweep(tmp_path / "absent.yaml"), r"absent\.yaml cannot be read"),
        (lambda: cscct.reproduce("table9"), "The paper has no 'table9'"),
        (lambda: cscct.report(tmp_path), "no run"),
    ]
    for call, message in calls:
        with pytest.raises(UserError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
