"""`cscct list` and `cscct data`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pictures import draw

Call = Callable[..., subprocess.CompletedProcess[str]]

PLUGIN = """
import numpy as np
import torch
from cscct.data import ArrayImages, Dataset, Split
from cscct.data.registry import DatasetKind, register

def load(request):
    part = Split(ArrayImages(torch.zeros(4, 1, 8, 8, dtype=torch.uint8)), np.array([0, 0, 1, 1]))
    return Dataset("dark", ("night", "cave"), part, part, channels=1)

register(DatasetKind("dark", "images without light", 2, load, fetchable=False))
"""

HEAD = """
from cscct.nets import LinearHead, register_head

@register_head("mine")
class Mine(LinearHead):
    'A head from a plugin.'
"""


def test_datasets_of_plugins(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "dark.py").write_text(PLUGIN)
    listed = cscct("data", "list", "--json", "--plugin", "dark.py")
    assert json.loads(listed.stdout)["dark"]["summary"] == "images without light", listed.stderr
    checked = cscct("data", "check", "dark", "--json", "--plugin", "dark.py")
    assert json.loads(checked.stdout)["train_images_per_class"] == {"min": 2, "max": 2}, checked.stderr
    printed = cscct("data", "check", "dark", "--plugin", "dark.py").stdout
    assert {"train images per class     2", "image size                 1 x 8 x 8"} <= set(printed.splitlines())
    fetched = cscct("data", "fetch", "dark", "--plugin", "dark.py")
    assert fetched.returncode == 2
    assert "it has no download source" in fetched.stderr


def test_list_reads_docstrings_of_plugin_parts(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEAD)
    listing = json.loads(cscct("list", "--json", "--plugin", "mine.py").stdout)
    assert listing["heads"]["mine"] == "A head from a plugin."


def test_ascii_terminal(tmp_path: Path) -> None:
    """In new processes, because Python reads these variables at startup."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}

    def call(*arguments: str) -> str:
        command, env = [sys.executable, "-m", "cscct", *arguments], {**os.environ, **ascii_only}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert call("list").isascii()
    for dataset in ("digits", "cifar100", "imagenet-subset", "folder"):  # each preset is read
        assert call("config", "lucir", dataset).isascii()


def test_warnings_of_a_check_are_on_stderr(cscct: Call, tmp_path: Path) -> None:
    for place in ("a/0.png", "a/1.png", "b/0.png", "b/1.png", "b/2.png"):
        draw(tmp_path / "own" / place)
    (tmp_path / "own" / "b" / "Thumbs.db").write_bytes(b"x")
    done = cscct("data", "check", "folder", "--data-dir", "own")
    assert done.returncode == 0, done.stderr
    assert "train images per class     1 to 2" in done.stdout
    assert "Thumbs.db" not in done.stdout
    assert done.stderr.endswith("warning: Ignored 1 file that is not an image in own: b/Thumbs.db.\n")
