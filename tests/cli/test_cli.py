"""The command as people type it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cscct.cli.stopping import interruptible
from cscct.errors import Interrupted
from cscct.ui.progress import Display

Call = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--set", "train.epochs=1", "--set", "data.train_per_class=20", "--threads", "1")

PLUGIN = """
from __future__ import annotations
from dataclasses import dataclass
from cscct.methods import Method, register
register(Method("mine", "replay again", {"loss": {"cross_entropy": {}}}, like="lucir"))

@dataclass
class Thing:
    size: int
"""


def test_run_writes_what_it_promises(cscct: Call, tmp_path: Path) -> None:
    done = cscct("run", "lucir+cscct", "digits", *QUICK, "--out", "r", "-B", "6", "-C", "2", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "average incremental accuracy" in done.stdout
    assert "classifier *" in done.stdout
    assert "task 3/3" in done.stderr  # plain lines when piped
    assert "\x1b" not in done.stderr + done.stdout
    folder = tmp_path / "r"
    files = {"config.yaml", "origin.json", "result.json", "metrics.jsonl", "model.safetensors", "tasks", ".lock"}
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
    assert "finished already" in same.stderr
    other = cscct("run", "lucir", "digits", *QUICK, "--out", "r")
    assert other.returncode == 2
    assert "already holds another run" in other.stderr


def test_quiet_says_nothing_and_names_a_folder_of_its_own(cscct: Call, tmp_path: Path) -> None:
    for _ in range(2):
        done = cscct("run", "replay", "digits", *QUICK, "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"replay-digits-seed1", "replay-digits-seed1-2"}


@pytest.mark.parametrize(
    ("words", "said"),
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
        (["run", "lucir", "digits", "--plugin", "absent.py"], "absent.py is not there"),
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
def test_a_mistake_is_one_sentence_exit_2_and_nothing_written(
    words: list[str], said: str, cscct: Call, tmp_path: Path
) -> None:
    done = cscct(*words)
    assert done.returncode == 2, done.stderr
    assert said.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_explodes_leaves_what_was_finished(cscct: Call, tmp_path: Path) -> None:
    done = cscct("run", "lucir+csc", "digits", *QUICK, "--set", "loss.csc.weight=1e39", "--out", "r")
    assert done.returncode == 1
    assert "csc" in done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert result["status"] == "failed"
    assert "task 2" in result["error"]
    assert len(result["tasks"]) == 1
    assert result["summary"]["classifier"]["last_accuracy"] > 0


def test_plugin(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    assert "replay again" in cscct("list", "--plugin", "mine.py").stdout
    done = cscct("run", "mine+ct", "digits", *QUICK, "--plugin", "mine.py", "--quiet")
    assert done.returncode == 0, done.stderr
    (tmp_path / "broken.py").write_text("1/0")
    broken = cscct("run", "mine", "digits", "--plugin", "broken.py")
    assert broken.returncode == 2
    assert "ZeroDivisionError" in broken.stderr


def test_list(cscct: Call) -> None:
    listing = json.loads(cscct("list", "--json").stdout)
    more = {"wa", "bic", "er-ace", "der++", "ncm", "lda", "ridge"}
    assert set(listing["methods"]) == {"icarl", "icarl-bce", "lucir", "podnet", "replay", *more}
    assert len(listing["losses"]) == 14
    assert all(summary for entries in listing.values() for summary in entries.values())
    text = cscct("list").stdout
    assert all(name in text for name in ("lucir-resnet18", "cifar100", "+cscct", "seed-1993", "podnet-1"))


def test_data_list_and_check(cscct: Call) -> None:
    assert "cscct data fetch cifar100" in cscct("data", "list").stdout
    assert json.loads(cscct("data", "list", "--json").stdout)["cifar100"]["fetchable"] is True
    found = json.loads(cscct("data", "check", "digits", "--json").stdout)
    assert (found["classes"], found["train_images"] + found["test_images"]) == (10, 1797)


def test_help_needs_nothing_heavy() -> None:
    """Not timed: what makes help slow is what it imports."""
    code = "import sys, cscct.cli; print(*(m for m in ('torch', 'numpy', 'sklearn', 'pydantic') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    for words in (["--help"], ["run", "--help"], ["data", "--help"]):
        helped = subprocess.run([sys.executable, "-m", "cscct", *words], capture_output=True, text=True, check=True)
        assert "Usage" in helped.stdout
    assert subprocess.run([sys.executable, "-m", "cscct", "--version"], check=True).returncode == 0


def test_a_folder_of_pictures(cscct: Call, tmp_path: Path) -> None:
    for number, name in enumerate(("ant", "bee", "cat", "dog")):
        for i in range(6):
            path = tmp_path / "pets" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + i, 30), (60 * number, 20 * i, 90)).save(path)
    size = ("--set", "data.transform.size=16", "--set", "network.depth=8", "--set", "train.epochs=1")
    done = cscct("run", "lucir+cscct", "folder", "--data-dir", "pets", *size, "--out", "r", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "The memory holds 20 exemplars a class" in done.stderr
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


def test_reading_data_is_broken_off_when_a_stop_is_asked_for() -> None:
    heard: list[tuple[str, int, int]] = []
    asked = [False]
    progress = interruptible(lambda: asked[0], lambda *words: heard.append(words))
    progress("checking images", 1, 3)
    asked[0] = True
    with pytest.raises(Interrupted, match="Stopped while checking images"):
        progress("checking images", 2, 3)
    assert heard == [("checking images", 1, 3)]


STOPPED_AT_ONCE = """
import sys
from contextlib import nullcontext
from cscct.cli import main, running
running.stop_on_request = lambda say: nullcontext(lambda: True)
sys.argv = ["cscct", "run", "lucir", "folder", "--data-dir", "photos"]
main()
"""


def test_a_run_asked_to_stop_while_it_reads_its_data(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (20, 20)).save(tmp_path / "photos" / name / f"{number}.png")
    command = [sys.executable, "-c", STOPPED_AT_ONCE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert "Stopped while checking images, before any training." in done.stderr
    assert not (tmp_path / "runs").exists()


def test_time_left_of_reading_counts_from_where_this_process_began(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cscct.ui.progress.time.monotonic", lambda: now[0])
    display = Display("plain")
    said: list[str] = []
    monkeypatch.setattr(display, "say", said.append)
    display.reading("checking images", 1, 10)
    now[0] = 1000.0
    for done in (501, 506):  # an earlier process had made 500
        display.reading("copying training images", done, 601)
        now[0] += 50
    assert said == ["  copying training images: 506 of 601 | 15:50 left"]  # 10 s each


@pytest.mark.parametrize("out", ["afile", "afile/x"])
@pytest.mark.parametrize("words", [["run", "lucir", "digits"], ["compare", "lucir", "icarl"], ["sweep", "study.yaml"]])
def test_a_folder_that_cannot_be_made_is_one_sentence(words: list[str], out: str, cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    (tmp_path / "study.yaml").write_text("{dataset: digits, methods: [lucir], seeds: [1]}")
    done = cscct(*words, "--out", out)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "afile" in done.stderr
