"""Imports point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import cscct

ROOT = Path(cscct.__file__).parent
LAYERS = [
    {"errors", "lazy", "registry", "structs", "specs", "seeding", "streams"},
    {"losses", "nets", "optim", "data", "memory", "metrics", "predictors", "yamltext"},
    {"methods"},
    {"config", "plugins"},
    {"learn"},
    {"runs"},
    {"studies", "classifier"},
    {"analysis"},
    {"report"},
    {"paper"},
    {"api"},
    {"ui"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path: Path) -> set[str]:
    """Parts of the package that a file imports, wherever in it the import stands."""
    package = path.relative_to(ROOT.parent).with_suffix("").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "cscct" and len(name) > 1}
    return found


def test_imports_point_one_way() -> None:
    files = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    assert len(files) > 40
    for path in files:
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for other in imported(path) - {"__version__"}:
            if other != part:
                assert other in LEVEL, f"{path} imports {other}, which has no place in the layers"
                assert LEVEL[other] < LEVEL[part], f"{path}: {part} must not import {other}"


def test_the_parts_of_a_layer_stand_alone() -> None:
    seen = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")} - {"__init__"}
    assert seen == set(LEVEL)
