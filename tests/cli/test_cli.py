"""`cscct run`, `list` and `data`, called as subprocesses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cscct.losses import TERMS
from cscct.methods import METHODS
from cscct.progress import Display

Call = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--set", "train.epochs=1", "--set", "data.train_per_class=20", "--threads", "1")


def test_run_writes_its_files(cscct: Call, tmp_path: Path) -> None:
    done = cscct("run", "lucir+cscct", "digits", *QUICK, "--out", "r", "-B", "6", "-C", "2", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "average incremental accuracy" in done.stdout
    assert "classifier *" in done.stdout
    assert "task 3/3" in done.stderr  # plain lines when piped
    assert "\x1b" not in done.stderr + done.stdout
    folder = tmp_path / "r"
    files = {"config.yaml", "origin.json", "result.json", "metrics.jsonl", "model.safetensors", "tasks", ".lock"}
    files.add("exemplars.safetensors")
    assert {p.name for p in folder.iterdir()} == files
    result = json.loads((folder / "result.json").read_text())
    wanted = {"status", "method", "dataset", "seed", "headline", "tasks", "matrix", "summary", "weights_sha256"}
    assert wanted <= set(result)
    assert (result["status"], result["method"], result["seed"]) == ("finished", "lucir+cscct", 3)
    assert str(tmp_path) not in json.dumps(result)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["task"] for line in lines] == [0, 1, 2]
    assert set(lines[2]["losses"]) == {"cross_entropy", "less_forget", "margin_ranking", "csc", "ct"}
    assert all(line["lr"] and line["images_per_second"] > 0 for line in lines)

    again = cscct("run", "--config", "r/config.yaml", "--out", "again", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["weights_sha256"] == result["weights_sha256"]
    assert again.stderr == ""

    same = cscct("run", "--config", "r/config.yaml", "--out", "r")
    assert same.returncode == 0
    assert "already finished" in same.stderr
    other = cscct("run", "lucir", "digits", *QUICK, "--out", "r")
    assert other.returncode == 2
    assert "already contains another run" in other.stderr


def test_quiet_prints_nothing_and_uses_a_new_folder(cscct: Call, tmp_path: Path) -> None:
    for _ in range(2):
        done = cscct("run", "replay", "digits", *QUICK, "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"replay-digits-seed1", "replay-digits-seed1-2"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "lucri", "digits"], "did you mean 'lucir'"),
        (["run", "lucir+cs", "digits"], "+csc"),
        (["run", "lucir", "digit"], "did you mean 'digits'"),
        (["run", "lucir"], "a method and a dataset"),
        (["run", "lucir", "digits", "-B", "0"], "protocol.base is 0"),
        (["run", "lucir", "digits", "-B", "x"], "-B"),
        (["run", "lucir", "digits", "-C", "11"], "(protocol.step) is 11"),
        (["run", "lucir", "digits", "--set", "train.epoch=1"], "train.epochs"),
        (["run", "lucir", "digits", "--frobnicate"], "--frobnicate"),
        (["run", "lucir", "digits", "--config", "absent.yaml"], "cannot be read"),
        (["run", "lucir", "digits", "--plugin", "absent.py"], "absent.py does not exist"),
        (["run", "lucir", "digits", "--device", "tpu"], "runtime.device"),
        (["run", "lucir", "digits", "--precision", "8"], "numerics.precision"),
        (["run", "lucir", "digits", "--compile", "fast"], "numerics.compile"),
        (["run", "lucir", "cifar100", "--data-dir", "empty"], "cscct data fetch cifar100"),
        (["run", "lucir", "imagenet-subset", "--data-dir", "empty"], "imagenet-subset"),
        (["run", "lucir", "digits", "--recipe", "best"], "released and printed"),
        (["data", "fetch", "mnist"], "mnist"),
        (["data", "fetch", "digits"], "cannot be fetched"),
        (["frobnicate"], "frobnicate"),
    ],
    ids=" ".join,
)
def test_user_errors_print_one_line_exit_2_and_write_nothing(
    arguments: list[str], message: str, cscct: Call, tmp_path: Path
) -> None:
    done = cscct(*arguments)
    assert done.returncode == 2, done.stderr
    assert message.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_keeps_finished_tasks(cscct: Call, tmp_path: Path) -> None:
    done = cscct("run", "lucir+csc", "digits", *QUICK, "--set", "loss.csc.weight=1e39", "--out", "r")
    assert done.returncode == 1
    assert "csc" in done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert result["status"] == "failed"
    assert "task 2" in result["error"]
    assert len(result["tasks"]) == 1
    assert result["summary"]["classifier"]["last_accuracy"] > 0


def test_list(cscct: Call) -> None:
    listing = json.loads(cscct("list", "--json").stdout)
    assert set(listing["methods"]) == set(METHODS)
    assert set(listing["losses"]) == set(TERMS)
    assert len(METHODS) == 30
    assert all(summary for entries in listing.values() for summary in entries.values())
    text = cscct("list").stdout
    assert all(name in text for name in ("lucir-resnet18", "cifar100", "+cscct", "seed-1993", "podnet-1"))


def test_data_list_and_check(cscct: Call) -> None:
    assert "cscct data fetch cifar100" in cscct("data", "list").stdout
    assert json.loads(cscct("data", "list", "--json").stdout)["cifar100"]["fetchable"] is True
    summary = json.loads(cscct("data", "check", "digits", "--json").stdout)
    assert (summary["classes"], summary["train_images"] + summary["test_images"]) == (10, 1797)


def test_help_imports_no_large_package() -> None:
    """Imports determine the time of help, so they are checked instead of the time."""
    code = "import sys, cscct.cli; print(*(m for m in ('torch', 'numpy', 'sklearn', 'pydantic') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    for arguments in (["--help"], ["run", "--help"], ["data", "--help"]):
        helped = subprocess.run([sys.executable, "-m", "cscct", *arguments], capture_output=True, text=True, check=True)
        assert "Usage" in helped.stdout
    assert subprocess.run([sys.executable, "-m", "cscct", "--version"], check=True).returncode == 0


def test_a_folder_of_images(cscct: Call, tmp_path: Path) -> None:
    for number, name in enumerate(("ant", "bee", "cat", "dog")):
        for i in range(6):
            path = tmp_path / "pets" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + i, 30), (60 * number, 20 * i, 90)).save(path)
    size = ("--set", "data.transform.size=16", "--set", "network.depth=8", "--set", "train.epochs=1")
    done = cscct("run", "lucir+cscct", "folder", "--data-dir", "pets", *size, "--out", "r", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "The memory holds 20 exemplars per class" in done.stderr
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert sorted(name for task in result["tasks"] for name in task["classes"]) == ["ant", "bee", "cat", "dog"]
    assert [len(task["classes"]) for task in result["tasks"]] == [2, 1, 1]

    (tmp_path / "pets" / "cat" / "bad.jpg").write_text("not a picture")
    refused = cscct("run", "lucir", "folder", "--data-dir", "pets", *size, "--out", "x")
    assert refused.returncode == 2
    assert "bad.jpg" in refused.stderr
    assert "--skip-bad-images" in refused.stderr
    assert not (tmp_path / "x").exists()
    skipped = cscct("run", "lucir", "folder", "--data-dir", "pets", *size, "--out", "x", "--skip-bad-images")
    assert skipped.returncode == 0, skipped.stderr


STOPPED_AT_ONCE = """
import sys
from contextlib import nullcontext
from cscct.cli import main, options
options.stop_on_request = lambda say: nullcontext(lambda: True)
sys.argv = ["cscct", "run", "lucir", "folder", "--data-dir", "photos"]
main()
"""


def test_a_run_can_be_stopped_while_it_reads_data(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (20, 20)).save(tmp_path / "photos" / name / f"{number}.png")
    command = [sys.executable, "-c", STOPPED_AT_ONCE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert "Stopped while checking images, before training." in done.stderr
    assert not (tmp_path / "runs").exists()


def test_remaining_time_of_reading_ignores_items_of_earlier_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cscct.progress.time.monotonic", lambda: now[0])
    display = Display("plain")
    lines: list[str] = []
    monkeypatch.setattr(display, "say", lines.append)
    display.reading("checking images", 1, 10)
    now[0] = 1000.0
    for done in (501, 506):  # an earlier process has copied 500
        display.reading("copying training images", done, 601)
        now[0] += 50
    assert lines == ["  copying training images: 506 of 601 | 15:50 left"]  # 10 s each


@pytest.mark.parametrize("out", ["afile", "afile/x"])
@pytest.mark.parametrize(
    "arguments", [["run", "lucir", "digits"], ["compare", "lucir", "icarl"], ["sweep", "study.yaml"]]
)
def test_a_folder_that_cannot_be_created_is_a_user_error(
    arguments: list[str], out: str, cscct: Call, tmp_path: Path
) -> None:
    (tmp_path / "afile").touch()
    (tmp_path / "study.yaml").write_text("{dataset: digits, methods: [lucir], seeds: [1]}")
    done = cscct(*arguments, "--out", out)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "afile" in done.stderr
