"""The wheel, installed somewhere else, is whole: presets and data are inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return target


def test_installed_command_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}

    def call(*words: str) -> str:
        command = [sys.executable, str(installed / "bin" / "cscct"), *words]
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    where = [sys.executable, "-c", "import cscct; print(cscct.__file__)"]
    assert str(installed) in subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert "lucir" in call("list")
    words = ("--set", "train.epochs=1", "--threads", "1", "--json")
    assert json.loads(call("run", "podnet+cscct", "digits", *words))["status"] == "finished"
    inside = {str(path.relative_to(installed)) for path in (installed / "cscct").rglob("*")}
    assert {"cscct/py.typed", "cscct/data/imagenet_subset_wnids.txt"} <= inside
    assert len([name for name in inside if name.startswith("cscct/presets/") and name.endswith(".yaml")]) == 4
