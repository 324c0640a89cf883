"""The call paths in docs/architecture.md, compared with a trace of the commands."""

import json
import re
from pathlib import Path

import pytest

from pages import DOCS, python
from pictures import draw_class

Function = tuple[str, str]  # file and qualified name
PAGE = (DOCS / "architecture.md").read_text()
SOURCE = Path(__file__).parents[1] / "src" / "cscct"

# Prints the functions of the package in the order of their first call, for each command and for the second task.
TRACER = """
import contextlib, json, sys, threading
from pathlib import Path

import cscct.cli
from cscct.classifier.serve.app import create_app
from starlette.testclient import TestClient

SOURCE = str(Path(cscct.__file__).parent)
calls, batch, stages = {}, {}, 0

def record(frame, event, _):
    global stages
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(SOURCE):
        function = (code.co_filename[len(SOURCE) + 1:], code.co_qualname)
        stages += function == ("learn/loop.py", "run_stage")
        calls.setdefault(function)
        if stages == 2:
            batch.setdefault(function)

def command(*arguments):
    calls.clear()
    sys.argv = ["cscct", *arguments]
    with contextlib.suppress(SystemExit):
        cscct.cli.main()
    return list(calls)

output, sys.stdout = sys.stdout, sys.stderr
threading.setprofile(record)
sys.setprofile(record)
settings = ["train.epochs=1", "data.train_per_class=8", "data.test_per_class=2", "runtime.threads=1"]
paths = {"run": command("run", "lucir+cscct", "digits", "--out", "run", *[x for s in settings for x in ("--set", s)])}
paths["batch"] = list(batch)
paths["learn"] = command("learn", "model", "photos", "--backbone", "lucir-resnet")
with TestClient(create_app("model"), base_url="http://localhost") as client:
    calls.clear()
    image = next(Path("photos").rglob("*.*"))
    assert client.post("/api/classify", files={"images": image.read_bytes()}).status_code == 200
    paths["upload"] = list(calls)
sys.setprofile(None)
print(json.dumps(paths), file=output)
"""


def documented(section: str) -> list[Function]:
    """Return the stops of a section of the page."""
    text = next(part for part in PAGE.split("\n### ") if part.startswith(section)).split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Function]]:
    pytest.importorskip("fastapi", reason="pip install 'cscct[serve]'")
    folder = tmp_path_factory.mktemp("trace")
    for label in ("bonsai", "ewer"):
        draw_class(folder / "photos", label, 12)
    completed = python(TRACER, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    return {name: [(file, function) for file, function in path] for name, path in json.loads(completed.stdout).items()}


@pytest.mark.parametrize(
    ("name", "section", "most"),
    [
        ("run", "`cscct run", 20),
        ("batch", "One training batch", 12),
        ("learn", "`cscct learn", 14),
        ("upload", "One classified upload", 9),
    ],
)
def test_documented_call_paths(name: str, section: str, most: int, traces: dict[str, list[Function]]) -> None:
    stops = documented(section)
    assert most - 1 <= len(stops) <= most
    assert len({file for file, _ in stops}) == len(stops)  # no file twice
    assert stops == sorted(stops, key=traces[name].index)


def test_the_module_table_lists_every_module() -> None:
    table = PAGE.split("\n## Modules\n")[1].split("\n## ")[0]
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "__main__.py"}
    packages = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    assert len(modules) > 15
    assert len(packages) > 10
    named = set(re.findall(r"`([\w/]+\.py|\w+/)`", table))
    assert modules | packages <= named
    assert {name for name in named if name.endswith(".py")} <= {path.name for path in SOURCE.rglob("*.py")}
