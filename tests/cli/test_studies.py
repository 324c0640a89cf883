"""Comparisons, sweeps, exhibits and reports as people type them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cscct.cli import main

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cscct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command in this process, in an empty folder: starting one for each call takes longer than the calls."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr("sys.argv", ["cscct", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return subprocess.CompletedProcess(words, int(end.value.code or 0), *capsys.readouterr())

    return call


QUICK = ("--set", "train.epochs=1", "--set", "data.train_per_class=20", "--threads", "1")


def test_compare_shares_first_tasks_and_gives_paired_differences(cscct: Call, tmp_path: Path) -> None:
    words = ("compare", "lucir", "lucir+cscct", "icarl", "--seeds", "1,2", *QUICK)
    done = cscct(*words, "--out", "c")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training done before") == 4  # of six runs two train their first task
    assert "vs lucir" in done.stdout
    assert "Results: c" in done.stdout
    assert len(list((tmp_path / "c" / "first-tasks").iterdir())) == 2
    answer = json.loads((tmp_path / "c" / "compare.json").read_text())
    rows = {row["method"]: row for row in answer["methods"]}
    assert list(rows) == ["lucir", "lucir+cscct", "icarl"]
    assert rows["lucir"]["gain"] is None
    gain = rows["lucir+cscct"]["gain"]
    assert gain["low"] < gain["mean"] < gain["high"]
    with Image.open(tmp_path / "c" / "curves.png") as picture:
        assert min(picture.size) > 400
    assert (tmp_path / "c" / "compare.csv").read_text().count("\n") == 4
    assert (tmp_path / "c" / "results.tex").is_file()
    assert (tmp_path / "c" / "results.md").is_file()

    alone = cscct("run", "lucir+cscct", "digits", *QUICK, "--seed", "2", "--out", "alone", "--json")
    shared = json.loads((tmp_path / "c" / "lucir+cscct-seed2" / "result.json").read_text())
    assert json.loads(alone.stdout)["weights_sha256"] == shared["weights_sha256"]

    repeated = cscct(*words, "--out", "c", "--json")
    assert json.loads(repeated.stdout) == answer
    in_processes = cscct(*words, "--out", "p", "--jobs", "2")
    assert in_processes.returncode == 0, in_processes.stderr
    assert json.loads((tmp_path / "p" / "compare.json").read_text()) == answer


def test_compare_goes_on_when_one_run_fails(cscct: Call, tmp_path: Path) -> None:
    words = ("compare", "lucir+csc", "lucir", "--seeds", "1", *QUICK, "--set", "loss.csc.weight=1e39", "--out", "c")
    done = cscct(*words, "--jobs", "2")
    assert done.returncode == 1
    assert "1 of 2 runs failed" in done.stderr
    assert "csc became" in done.stderr
    assert json.loads((tmp_path / "c" / "lucir-seed1" / "result.json").read_text())["status"] == "finished"
    assert cscct(*words).returncode == 1  # and again in this process


def test_a_config_of_a_comparison_may_name_a_recipe(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "{recipe: released, dataset: digits, train: {epochs: 1}, loss: {csc: {weight: 2}}}"
    )
    small = ("--set", "data.train_per_class=5", "--threads", "1", "--seeds", "1", "--out", "c", "--quiet")
    done = cscct("compare", "lucir", "lucir+csc", "--config", "c.yaml", *small)
    assert (done.returncode, done.stderr) == (0, "")
    assert "weight: 2.0" in (tmp_path / "c" / "lucir+csc-seed1" / "config.yaml").read_text()


STUDY = """
dataset: digits
methods: [lucir, lucir+ct]
seeds: [1]
set: {train.epochs: 1, data.train_per_class: 20, runtime.threads: 1}
grid: {memory.per_class: [2, 5]}
"""


def test_sweep_is_planned_run_and_not_repeated(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    planned = cscct("sweep", "study.yaml", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert [run["state"] for run in plan["runs"]] == ["free"] * 4
    assert (plan["first_tasks_to_train"], plan["runs_that_share_one"]) == (1, 3)
    assert not (tmp_path / "runs").exists()

    done = cscct("sweep", "study.yaml", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 runs finished" in done.stderr
    assert "vs lucir" in done.stdout
    entries = json.loads((tmp_path / "runs" / "study" / "sweep.json").read_text())["methods"]
    assert [entry["settings"] for entry in entries] == [{"memory.per_class": size} for size in (2, 5, 2, 5)]
    assert [entry["gain"] is None for entry in entries] == [True, True, False, False]
    marks = {run: run.stat().st_mtime_ns for run in (tmp_path / "runs" / "study").glob("*/result.json")}
    keys = {json.loads(run.read_text())["first_task"] for run in marks}
    assert [path.stem for path in (tmp_path / "runs" / "study" / "first-tasks").iterdir()] == list(keys)

    again = cscct("sweep", "study.yaml")
    assert again.returncode == 0
    assert "finished already" in again.stderr
    assert {run: run.stat().st_mtime_ns for run in marks} == marks
    after = json.loads(cscct("sweep", "study.yaml", "--dry-run", "--json").stdout)
    assert (after["finished"], after["seconds_left"]) == (4, 0)

    for setting in ("train.epochs=2", "runtime.precision=bf16-mixed"):
        other = cscct("sweep", "study.yaml", "--set", setting)
        assert other.returncode == 2
        assert "already holds another run" in other.stderr


def test_a_failed_run_does_not_stop_a_sweep(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        STUDY.replace("memory.per_class: [2, 5]", "loss.cross_entropy.weight: [1, 1e39]")
    )
    done = cscct("sweep", "study.yaml", "--out", "s")
    assert done.returncode == 1
    assert "2 of 4 runs failed" in done.stderr
    assert "cross_entropy became" in done.stderr
    entries = json.loads((tmp_path / "s" / "sweep.json").read_text())["methods"]
    assert [entry["seeds"] for entry in entries] == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "nothing.yaml"], "cannot be read"),
        (["reproduce", "table9"], "The paper has no 'table9'"),
        (["reproduce", "table1", "--scale", "tiny"], "There is no scale 'tiny'"),
        (["reproduce", "table1", "--recipe", "mine", "--dry-run"], "mine"),
        (["reproduce", "tsne", "--scale", "cpu", "--data-dir", "empty"], "cscct data fetch cifar100"),
        (["report", "nothing"], "nothing"),
        (["compare", "lucir", "icarl", "--seeds", "1,a"], "--seeds"),
        (["compare", "lucir", "icarl", "--seeds", "1,1"], "twice"),
        (["compare"], "METHODS"),
        (["compare", "lucir"], "two or more methods"),
        (["compare", "lucir", "icarl", "--set", "loss=5"], "loss must map names"),
        (["compare", "lucir", "icarl", "--set", "recipe=printed"], "recipe is not set with --set"),
        (["compare", "lucir", "icarl", "--device", "mps"], "mps"),
        (["sweep", "study.yaml", "--set", "loss=5"], "loss must map names"),
        (["reproduce", "table3", "--dry-run", "--set", "loss=5"], "loss must map names"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_mistakes_with_studies(words: list[str], said: str, cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "study.yaml").write_text(STUDY)
    done = cscct(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said.lower() in done.stderr.lower()
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "study.yaml"}


def test_report_of_a_comparison(cscct: Call, tmp_path: Path) -> None:
    cscct("compare", "lucir", "lucir+cscct", "--seeds", "1", *QUICK, "--out", "c", "--quiet")
    done = cscct("report", "c")
    assert done.returncode == 0, done.stderr
    page = tmp_path / "c" / "report" / "index.html"
    assert done.stdout == f"Report: {page.relative_to(tmp_path)}\n"
    assert "lucir+cscct" in page.read_text()
    again = cscct("report", "c", "--quiet")  # the report's own folder holds no run
    assert (again.returncode, again.stdout) == (0, "")
