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

# Prints the functions of the package in the order of their first call, with the number of calls, for each command and
# for the second task.
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
        calls[function] = calls.get(function, 0) + 1
        if stages == 2:
            batch[function] = batch.get(function, 0) + 1

def command(*arguments):
    calls.clear()
    sys.argv = ["cscct", *arguments]
    with contextlib.suppress(SystemExit):
        cscct.cli.main()
    return list(calls.items())

output, sys.stdout = sys.stdout, sys.stderr
threading.setprofile(record)
sys.setprofile(record)
settings = ["train.epochs=1", "data.train_per_class=8", "data.test_per_class=2", "runtime.threads=1"]
paths = {"run": command("run", "lucir+cscct", "digits", "--out", "run", *[x for s in settings for x in ("--set", s)])}
paths["batch"] = list(batch.items())
paths["learn"] = command("learn", "model", "photos", "--backbone", "lucir-resnet")
paths["learn more"] = command("learn", "model", "more")
with TestClient(create_app("model"), base_url="http://localhost") as client:
    calls.clear()
    image = next(Path("photos").rglob("*.*"))
    assert client.post("/api/classify", files={"images": image.read_bytes()}).status_code == 200
    paths["upload"] = list(calls.items())
sys.setprofile(None)
print(json.dumps(paths), file=output)
"""


def documented(section: str) -> list[Function]:
    """Return the stops of a section of the page."""
    text = next(part for part in PAGE.split("\n### ") if part.startswith(section)).split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[Function, int]]:
    pytest.importorskip("fastapi", reason="pip install 'cscct[serve]'")
    folder = tmp_path_factory.mktemp("trace")
    for label in ("bonsai", "ewer"):
        draw_class(folder / "photos", label, 12)
    draw_class(folder / "more", "cup", 12)
    completed = python(TRACER, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    paths = json.loads(completed.stdout)
    return {name: {(file, function): count for (file, function), count in path} for name, path in paths.items()}


@pytest.mark.parametrize(
    ("name", "section", "most"),
    [
        ("run", "`cscct run", 20),
        ("batch", "One training batch", 12),
        ("learn", "`cscct learn", 14),
        ("upload", "One classified upload", 9),
    ],
)
def test_documented_call_paths(name: str, section: str, most: int, traces: dict[str, dict[Function, int]]) -> None:
    stops = documented(section)
    assert most - 1 <= len(stops) <= most
    assert len({file for file, _ in stops}) == len(stops)  # no file twice
    assert stops == sorted(stops, key=list(traces[name]).index)


def test_learning_calls_each_stop_once_above_the_loops(traces: dict[str, dict[Function, int]]) -> None:
    loops = {"ItemReader.pixels", "Network.forward", "choose_exemplars"}  # batches and classes
    stops = [stop for stop in documented("`cscct learn") if stop[1] not in loops]
    assert len(stops) == 11
    assert [traces["learn"][stop] for stop in stops] == [1] * len(stops)
    loading = ("classifier/versions.py", "StoredVersions.load")
    existing = [loading if stop[1] == "build_reader" else stop for stop in stops]
    assert [traces["learn more"][stop] for stop in existing] == [1] * len(existing)
    for name in ("learn", "learn more"):  # the folder is read before the work, and changed after it
        stops = [stop for stop in traces[name] if stop[1] not in ("<module>", "ModelFolder")]
        learned = stops.index(("classifier/estimator.py", "IncrementalClassifier.learn"))
        assert "classifier/versions.py" in {file for file, _ in stops[:learned]}
        assert "classifier/store.py" not in {file for file, _ in stops[:learned]}


def test_the_module_table_lists_every_module() -> None:
    table = PAGE.split("\n## Modules\n")[1].split("\n## ")[0]
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "__main__.py"}
    packages = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    assert len(modules) > 15
    assert len(packages) > 10
    named = set(re.findall(r"`([\w/]+\.py|\w+/)`", table))
    assert modules | packages <= named
    assert {name for name in named if name.endswith(".py")} <= {path.name for path in SOURCE.rglob("*.py")}
