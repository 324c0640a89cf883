"""`cscct compare`, `sweep`, `reproduce` and `report`."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cscct.cli import main

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cscct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command in this process, because starting a process takes longer than the command."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr("sys.argv", ["cscct", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return subprocess.CompletedProcess(arguments, int(end.value.code or 0), *capsys.readouterr())

    return call


QUICK = ("--set", "train.epochs=1", "--set", "data.train_per_class=20", "--threads", "1")


def test_compare_shares_first_tasks_and_gives_paired_differences(cscct: Call, tmp_path: Path) -> None:
    arguments = ("compare", "lucir", "lucir+cscct", "icarl", "--seeds", "1,2", *QUICK)
    done = cscct(*arguments, "--out", "c")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("already trained") == 4  # of six runs two train their first task
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

    repeated = cscct(*arguments, "--out", "c", "--json")
    assert json.loads(repeated.stdout) == answer
    shutil.copytree(tmp_path / "c", tmp_path / "p")
    for name in ("lucir-seed1", "lucir+cscct-seed1", "first-tasks"):  # two runs of the same first task
        shutil.rmtree(tmp_path / "p" / name)
    in_processes = cscct(*arguments, "--out", "p", "--jobs", "2")
    assert in_processes.returncode == 0, in_processes.stderr
    assert len(list((tmp_path / "p" / "first-tasks").iterdir())) == 1
    assert json.loads((tmp_path / "p" / "compare.json").read_text()) == answer


def test_compare_continues_when_a_run_fails(cscct: Call, tmp_path: Path) -> None:
    arguments = ("compare", "lucir+csc", "lucir", "--seeds", "1", *QUICK, "--set", "loss.csc.weight=1e39", "--out", "c")
    done = cscct(*arguments, "--jobs", "2")
    assert done.returncode == 1
    assert "1 of 2 runs failed" in done.stderr
    assert "csc became" in done.stderr
    assert json.loads((tmp_path / "c" / "lucir-seed1" / "result.json").read_text())["status"] == "finished"
    assert cscct(*arguments).returncode == 1  # also in this process


def test_compare_takes_a_precision(cscct: Call, tmp_path: Path) -> None:
    small = ("--set", "train.epochs=1", "--set", "data.train_per_class=5", "--seeds", "1", "--out", "c", "--quiet")
    done = cscct("compare", "replay", "lucir", *small, "--threads", "1", "--precision", "bf16-mixed")
    assert (done.returncode, done.stderr) == (0, "")
    for method in ("replay", "lucir"):
        assert "precision: bf16-mixed" in (tmp_path / "c" / f"{method}-seed1" / "config.yaml").read_text()


@pytest.mark.parametrize("arguments", [["sweep", "study.yaml"], ["reproduce", "tsne"]], ids=" ".join)
def test_studies_take_a_precision_and_a_log(arguments: list[str], cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    planned = cscct(*arguments, "--precision", "bf16-mixed", "--log", "tensorboard", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    runs = json.loads(planned.stdout)["runs"]
    assert len(runs) > 1
    assert {run["settings"]["numerics"]["precision"] for run in runs} == {"bf16-mixed"}
    assert {run["settings"]["runtime"]["log"] for run in runs} == {"tensorboard"}


STUDY = """
dataset: digits
methods: [lucir, lucir+ct]
seeds: [1]
set: {train.epochs: 1, data.train_per_class: 20, runtime.threads: 1}
grid: {memory.per_class: [2, 5]}
"""


def test_sweep_plans_and_executes_each_run_once(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    planned = cscct("sweep", "study.yaml", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert [run["state"] for run in plan["runs"]] == ["free"] * 4
    assert (plan["first_tasks_to_train"], plan["runs_that_share_one"]) == (1, 3)
    assert not (tmp_path / "runs").exists()

    done = cscct("sweep", "study.yaml")
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
    assert "already finished" in again.stderr
    assert {run: run.stat().st_mtime_ns for run in marks} == marks
    after = json.loads(cscct("sweep", "study.yaml", "--dry-run", "--json").stdout)
    assert (after["finished"], after["seconds_left"]) == (4, 0)

    for setting in ("train.epochs=2", "runtime.precision=bf16-mixed"):
        other = cscct("sweep", "study.yaml", "--set", setting)
        assert other.returncode == 2
        assert "already contains another run" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "nothing.yaml"], "cannot be read"),
        (["reproduce", "table9"], "The paper has no 'table9'"),
        (["reproduce", "table1", "--scale", "tiny"], "There is no scale 'tiny'"),
        (["reproduce", "table1", "--recipe", "mine", "--dry-run"], "mine"),
        (["reproduce", "tsne", "--scale", "cpu", "--data-dir", "empty"], "cscct data fetch cifar100"),
        (["report", "nothing"], "nothing"),
        (["compare", "lucir", "icarl", "--seeds", "1,a"], "--seeds"),
        (["compare", "lucir", "icarl", "--seeds", "1,1"], "twice"),
        (["compare"], "METHOD"),
        (["compare", "lucir"], "at least two methods"),
        (["compare", "lucir", "icarl", "--set", "loss=5"], "loss must map names"),
        (["compare", "lucir", "icarl", "--set", "recipe=printed"], "recipe is not set with --set"),
        (["compare", "lucir", "icarl", "--device", "mps"], "mps"),
        (["sweep", "study.yaml", "--set", "loss=5"], "loss must map names"),
        (["reproduce", "table3", "--dry-run", "--set", "loss=5"], "loss must map names"),
    ],
    ids=lambda arguments: " ".join(arguments) if isinstance(arguments, list) else "",
)
def test_user_errors_of_studies(arguments: list[str], message: str, cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "study.yaml").write_text(STUDY)
    done = cscct(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message.lower() in done.stderr.lower()
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "study.yaml"}
