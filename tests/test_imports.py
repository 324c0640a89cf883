"""Imports follow one direction."""

import ast
from pathlib import Path

import cscct
from pages import DOCS, blocks

ROOT = Path(cscct.__file__).parent
LAYERS = [
    {"errors", "jsontext", "lazy", "registry", "structs", "text", "specs", "seeding", "streams", "threads"},
    {"storage"},
    {"losses", "nets", "optim", "data", "features", "metrics", "yamltext", "plugins"},
    {"memory", "methods"},
    {"config", "registration"},
    {"learn"},
    {"runs"},
    {"progress"},
    {"studies", "classifier"},
    {"analysis"},
    {"reporting"},
    {"paper"},
    {"ui"},
    {"experiments"},
    {"tuning"},
    {"api_studies"},
    {"api"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path: Path) -> set[str]:
    """Parts of the package that a file imports."""
    package = path.relative_to(ROOT.parent).with_suffix("").parts[:-1]
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        parts |= {name[1] for name in names if name[0] == "cscct" and len(name) > 1}
    return parts


def test_imports_point_one_way() -> None:
    files = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    assert len(files) > 40
    for path in files:
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for other in imported(path) - {"__version__"}:
            if other != part:
                assert other in LEVEL, f"{path} imports {other}, which has no place in the layers"
                assert LEVEL[other] < LEVEL[part], f"{path}: {part} must not import {other}"


def test_every_module_has_a_layer() -> None:
    seen = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")} - {"__init__"}
    assert seen == set(LEVEL)


def test_the_architecture_page_shows_the_layers() -> None:
    (diagram,) = [block for block in blocks(DOCS / "architecture.md", "") if block.startswith("errors, ")]
    assert [set(layer.split(", ")) for layer in " ".join(diagram.split()).split(" < ")] == LAYERS
