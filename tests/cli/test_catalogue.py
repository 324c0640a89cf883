"""`cscct list` and `cscct data`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

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


def test_datasets_of_plugins(cscct: Call, tmp_path: Path) -> None:
    (tmp_path / "dark.py").write_text(PLUGIN)
    listed = cscct("data", "list", "--json", "--plugin", "dark.py")
    assert json.loads(listed.stdout)["dark"]["summary"] == "images without light", listed.stderr
    checked = cscct("data", "check", "dark", "--json", "--plugin", "dark.py")
    assert json.loads(checked.stdout)["train_images_per_class"] == {"min": 2, "max": 2}, checked.stderr
    fetched = cscct("data", "fetch", "dark", "--plugin", "dark.py")
    assert fetched.returncode == 2
    assert "its author gave no way" in fetched.stderr


def test_a_terminal_that_knows_only_ascii(cscct: Call) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    listed = cscct("list", **ascii_only)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.isascii()
    for dataset in ("digits", "cifar100", "imagenet-subset", "folder"):  # each preset is read
        done = cscct("config", "lucir", dataset, **ascii_only)
        assert (done.returncode, done.stderr) == (0, "")
