"""The installed wheel is complete, imports are declared, and the lowest versions are those of `make test-lowest`."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
TESTED = {
    "ray",
    "tensorboard",
    "pretrained",
    "onnx",
    "serve",
    "heif",
    "video",
    "pandas",
    "tune",
    "test",
}  # with the lowest versions
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}  # where the names differ


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

    def call(*arguments: str) -> str:
        command = [sys.executable, str(installed / "bin" / "cscct"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    where = [sys.executable, "-c", "import cscct; print(cscct.__file__)"]
    assert str(installed) in subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert "lucir" in call("list")
    arguments = ("--set", "train.epochs=1", "--threads", "1", "--json")
    assert json.loads(call("run", "podnet+cscct", "digits", *arguments))["status"] == "finished"
    inside = {str(path.relative_to(installed)) for path in (installed / "cscct").rglob("*")}
    assert {"cscct/py.typed", "cscct/data/datasets/imagenet_subset_wnids.txt"} <= inside
    assert {
        f"cscct/classifier/serve/page/{name}" for name in ("index.html", "style.css", "main.js", "icon.svg")
    } <= inside
    assert len([name for name in inside if name.startswith("cscct/presets/") and name.endswith(".yaml")]) == 7


def distributions(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def imported(path: Path) -> set[str]:
    """Top-level modules that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(str(node.module))
    return {name.split(".")[0] for name in modules}


def test_imports_match_the_dependencies() -> None:
    files = list((ROOT / "src" / "cscct").rglob("*.py"))
    assert len(files) > 40
    modules = set().union(*map(imported, files)) - sys.stdlib_module_names - {"cscct"}
    used = {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in modules}
    # Imported where they are used. tensorboard, onnx and onnxscript are imported by torch; timm installs the others.
    optional = {"onnxruntime", "timm", "torchvision", "huggingface-hub", "datasets"}.union(
        *(distributions(EXTRAS[extra]) for extra in ("ray", "serve", "heif", "video", "pandas", "tune"))
    )
    assert used == distributions(PYPROJECT["project"]["dependencies"]) | optional


def test_lowest_versions_are_pinned() -> None:
    declared = [*PYPROJECT["build-system"]["requires"], *PYPROJECT["project"]["dependencies"]]
    declared += [line for extra in sorted(TESTED) for line in EXTRAS[extra]]
    others = {"timm", "hf", "wandb", "mlflow", "fuzz", "lint", "docs", "release", "dev"}
    assert set(EXTRAS) == TESTED | others  # a new one is to be tested too
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints-lowest.txt").read_text().splitlines())
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines if line}
    for requirement in map(Requirement, declared):
        assert [bound.operator for bound in requirement.specifier] == [">="], requirement
        (bound,) = requirement.specifier
        assert Version(pins[canonicalize_name(requirement.name)]) == Version(bound.version), requirement
