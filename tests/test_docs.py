"""The documentation: its Python blocks are executed, and its settings, commands and links are checked."""

import importlib.util
import inspect
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

import cscct as package
import cscct.losses as loss_functions
from pages import DOCS, EXAMPLE, PAGES, README, ROOT, blocks, draw_photos, python, run_blocks, unmarked_commands

ADDING = DOCS / "adding-a-method.md"
PARTS = DOCS / "adding-parts.md"
SWITCHES = {"--quiet", "-q", "--json", "--skip-bad-images"}
PHOTOS = {"photos": ["bonsai", "butterfly", "chandelier"], "this-week": ["ewer"]}
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("adding-a-method", 2),
        ("adding-parts", 6),
        ("tutorial", 7),
        ("pretrained", 1),
        ("notebook-own-loss", 7),
        ("notebook-comparison", 7),
    ],
)
def test_python_blocks_run_in_order(name: str, count: int, tmp_path: Path) -> None:
    codes = blocks(DOCS / f"{name}.md", "python")
    assert len(codes) == count
    if importlib.util.find_spec("pandas") is None:  # an optional package
        codes = [code for code in codes if "to_frame" not in code]
    run_blocks(codes, tmp_path)


def test_the_notebook_on_photos_runs(tmp_path: Path) -> None:
    draw_photos(tmp_path, **PHOTOS)
    codes = blocks(DOCS / "notebook-photos.md", "python")
    assert len(codes) == 8
    lines = run_blocks(codes, tmp_path).splitlines()
    assert "['red card']" in lines  # after the correction


def test_the_page_shows_the_example_file() -> None:
    assert EXAMPLE.read_text() in blocks(ADDING, "python")


def test_the_example_dataset_runs(cscct: Command, tmp_path: Path) -> None:
    (tmp_path / "stripes.py").write_text(plugin_code(PARTS, "DatasetKind("))
    (arguments,) = [arguments for arguments in experiments(PARTS) if "stripes" in arguments]
    completed = cscct(*arguments, "--set", "train.epochs=1", "--threads", "1", "--quiet", "--out", "run")
    assert completed.returncode == 0, completed.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "finished"


@pytest.mark.parametrize(
    ("method", "parts", "sets"),
    [
        (
            "mean-shift",
            {
                ADDING: ["@register_extension"],
                PARTS: ["@register_sampler", "@register_predictor", "@register_after_task"],
            },
            ["train.sampler=class_balanced", "predict.predictor=neighbour", "network.after_task=equal_norms"],
        ),
        (
            "replay",
            {PARTS: ["GrowingBackbone)"]},
            ["network.backbone=fresh", "network.depth=8", "network.imprint=none"],
        ),
    ],
)
def test_the_other_parts_run(
    method: str, parts: dict[Path, list[str]], sets: list[str], cscct: Command, tmp_path: Path
) -> None:
    arguments = ["run", method, "digits", "--threads", "1", "--quiet", "--out", "run"]
    for page, texts in parts.items():
        for text in texts:
            name = f"{re.sub('[^a-z_]', '', text)}.py"
            (tmp_path / name).write_text(plugin_code(page, text))
            arguments += ["--plugin", name]
    for setting in [
        "train.epochs=1",
        "data.train_per_class=20",
        "network.head=linear",
        "network.freeze_old=false",
        *sets,
    ]:
        arguments += ["--set", setting]
    completed = cscct(*arguments)
    assert completed.returncode == 0, completed.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "finished"


def plugin_code(page: Path, text: str) -> str:
    """Return the first Python block of a page that contains a text."""
    return next(code for code in blocks(page, "python") if text in code)


def settings_in(text: str) -> list[str]:
    """Return every `--set key=value` of a page, without placeholders such as `KEY=VALUE`."""
    matches = re.findall(r"--set[\s=]+(?:'([^']+)'|\"([^\"]+)\"|([^\s`|'\"]+))", text)
    settings = [next(part for part in parts if part) for parts in matches]
    return [setting.rstrip(".,;)") for setting in settings if re.match(r"[a-z_.]+=(?!\.\.\.)", setting)]


def experiments(page: Path) -> list[list[str]]:
    """Return the arguments of `cscct run` and `cscct compare` in shell blocks, without placeholders such as METHOD."""
    lines = "".join(blocks(page, "bash", "sh", "shell", "console", "")).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if "cscct " in line]
    chosen = [command[1:] for command in commands if command[:2] in (["cscct", "run"], ["cscct", "compare"])]
    return [command for command in chosen if not any(re.fullmatch(r"[A-Z_]{2,}(=.*)?", word) for word in command)]


# Resolves (methods, dataset, settings, recipe) with the first of the methods that has all losses in the settings.
RESOLVE = """
import json, sys
from pathlib import Path
from cscct.config import resolve
from cscct.yamltext import parse_override
from cscct.plugins import load_plugins
load_plugins([Path(argument) for argument in sys.argv[1:]])
problems = []
for methods, dataset, sets, recipe in json.load(sys.stdin):
    losses = {setting.split(".")[1].split("=")[0] for setting in sets if setting.startswith("loss.")}
    suitable = [method for method in methods if losses <= set(resolve(method, dataset).loss)]
    try:
        assert suitable, f"none of {methods} has all of the losses {sorted(losses)}"
        resolve(suitable[0], dataset, recipe=recipe, overrides=[parse_override(setting) for setting in sets])
    except Exception as error:
        problems.append(f"{methods} {dataset} {sets}: {error}")
print(json.dumps(problems))
"""
PLUGINS = {
    "stripes.py": (PARTS, "DatasetKind("),
    "plain.py": (PARTS, "register_backbone("),
    "mse.py": (README, "register_method("),
}


def problems_of(jobs: list[Any], folder: Path) -> list[str]:
    """Resolve settings with the plugins of the documentation and return the errors."""
    plugins = [str(EXAMPLE)]
    for name, (page, text) in PLUGINS.items():
        (folder / name).write_text(plugin_code(page, text))
        plugins.append(str(folder / name))
    completed = python(RESOLVE, *plugins, cwd=folder, stdin=json.dumps(jobs))
    assert completed.returncode == 0, completed.stderr
    problems: list[str] = json.loads(completed.stdout)
    return problems


def test_every_setting_in_the_documents_is_accepted(tmp_path: Path) -> None:
    """Each setting alone, on CIFAR-100, for PODNet (which has a fine-tuning stage) or a method with its loss."""
    settings = {setting for page in PAGES for setting in settings_in(page.read_text())}
    assert len(settings) > 40
    resnet18 = {"network.backbone=lucir-resnet18", "network.depth=18"}  # only valid together
    steps = [  # a multistep schedule requires milestones
        {"train.schedule.kind=multistep", "train.schedule.milestones=[80,120]"},
        {"finetune.schedule.kind=multistep", "finetune.schedule.milestones=[10]"},
    ]
    plain = {"network.backbone=plain", "network.depth=5"}
    combined = set.union(resnet18, plain, *steps)
    assert combined <= settings
    others = ["wa+cscct", "bic+cscct", "er-ace+cscct", "der+++cscct", "ewc+csc", "eeil+cscct"]
    methods = ["podnet+cscct", "lucir+cscct", "lucir+balanced", "icarl+cscct", "icarl-bce+cscct", "rkd+cscct", *others]
    jobs = [
        (
            ["eeil"] if setting.startswith("stages.balanced.") else methods,
            "digits" if setting.startswith("protocol.tasks") else "cifar100",
            [setting],
            None,
        )
        for setting in sorted(settings - combined - {"network.depth=8", "network.head=linear"})
    ]
    jobs += [(["podnet"], "cifar100", sorted(pair), None) for pair in steps]
    jobs += [
        (["lucir+cscct"], "cifar100", ["network.depth=8"], None),
        (["wa"], "cifar100", ["network.head=linear"], None),
    ]
    jobs += [(["icarl-bce"], "imagenet-subset", sorted(resnet18), None), (["lucir"], "cifar100", sorted(plain), None)]
    assert problems_of(jobs, tmp_path) == []


def parse_arguments(arguments: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the positional arguments and the values of each option of a command."""
    names: list[str] = []
    options: dict[str, list[str]] = {}
    remaining = iter(arguments)
    for argument in remaining:
        if argument in SWITCHES:
            continue
        if argument.startswith("-"):
            options.setdefault(argument, []).append(next(remaining))
        else:
            names.append(argument)
    return names, options


def test_every_experiment_in_the_documents_is_accepted(tmp_path: Path) -> None:
    jobs: list[Any] = []
    for page in PAGES:
        for command, *arguments in experiments(page):
            names, options = parse_arguments(arguments)
            if "--config" in options:
                continue
            sets = options.get("--set", [])
            for option, name in (("-B", "base"), ("-C", "step")):
                sets = sets + [f"protocol.{name}={value}" for value in options.get(option, [])]
            if command == "run":
                dataset = names.pop()
            else:
                dataset = (options.get("--dataset") or options.get("-d") or ["digits"])[0]
            assert names, f"{page.name}: no method in {arguments}"
            jobs += [([method], dataset, sets, options.get("--recipe", [None])[0]) for method in names]
    assert len(jobs) >= 20
    assert problems_of(jobs, tmp_path) == []


@pytest.mark.parametrize(("name", "count"), [("resuming", 3), ("reproducing", 8)])
def test_the_commands_of_a_page_run_in_order(name: str, count: int, cscct: Command, tmp_path: Path) -> None:
    """Results of the paper are only planned, because they need data and days; studies have one seed instead of two."""
    page = DOCS / f"{name}.md"
    for study in blocks(page, "yaml"):
        file = study.split()[1]  # in the first line
        (tmp_path / file).write_text(study.replace("seeds: [1, 2]", "seeds: [1]"))
    commands = unmarked_commands(page)
    assert len(commands) == count
    for arguments in commands:
        dry_run = ["--dry-run"] if arguments[0] == "reproduce" and "--dry-run" not in arguments else []
        completed = cscct(*arguments, *dry_run)
        assert completed.returncode == 0, (arguments, completed.stderr)
        assert "Traceback" not in completed.stderr
        if "--out" in arguments and "--dry-run" not in arguments:
            assert (tmp_path / arguments[arguments.index("--out") + 1]).is_dir()


def test_the_page_on_your_own_images_runs(cscct: Command, tmp_path: Path) -> None:
    """Its commands, then its Python block, on drawn images."""
    pytest.importorskip("onnxruntime", reason="pip install 'cscct[onnx]'")
    draw_photos(tmp_path, **PHOTOS)
    page = DOCS / "your-own-images.md"
    commands = unmarked_commands(page)
    names = {arguments[0] for arguments in commands}
    changes = {"undo", "rename", "forget", "review"}
    assert names == {"learn", "predict", "test", "suggest", "info", "export", *changes}
    for arguments in commands:
        completed = cscct(*arguments)
        assert completed.returncode == 0, (arguments, completed.stderr)
    (code,) = blocks(page, "python")
    assert "['bonsai', 'butterfly']" in run_blocks([code], tmp_path)


def test_links_between_pages_exist() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert len(links) > 50
    for page, link in links:
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("nav:\n")[2]
    assert sorted(re.findall(r"[\w-]+\.md", navigation)) == sorted(page.name for page in DOCS.glob("*.md"))


def test_the_scripts_for_clusters_run(tmp_path: Path) -> None:
    """On CPUs, with a variable in place of Slurm."""
    page = DOCS / "clusters.md"
    plan, array, tables, several = blocks(page, "bash")
    (study,) = blocks(page, "yaml")
    (tmp_path / "study.yaml").write_text(study)
    (tmp_path / "array.sh").write_text(array)
    (tmp_path / "split_plan.py").write_bytes((ROOT / "examples" / "split_plan.py").read_bytes())
    (tmp_path / "bin").mkdir()
    for name, options in (("cscct", "-m cscct"), ("python", "")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def shell(script: str, **variables: str) -> str:
        completed = subprocess.run(
            ["bash", "-e"], input=script, cwd=tmp_path, env=env | variables, capture_output=True, text=True
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout + completed.stderr

    assert "runs in first.txt: 1\nruns in rest.txt: 1" in shell(plan)
    shell("bash array.sh plan/first.txt", RUNS="runs/study", SLURM_ARRAY_TASK_ID="1")
    shell(several, RUNS="runs/study")  # one is finished already
    assert "All runs are already finished" in shell(tables, RUNS="runs/study")
    assert len(list((tmp_path / "runs" / "study" / "first-tasks").iterdir())) == 1
    assert (tmp_path / "runs" / "study" / "sweep.csv").is_file()


def test_the_reference_lists_every_public_name() -> None:
    documented = set(re.findall(r"^::: cscct\.([\w.]+)$", (DOCS / "reference.md").read_text(), flags=re.MULTILINE))
    assert set(package.__all__) <= documented
    functions = [item for item in vars(loss_functions).values() if inspect.isfunction(item)]
    losses = {item.__name__ for item in functions if item.__module__.startswith("cscct.losses.")} - {"register"}
    assert len(losses) >= 14
    assert {f"losses.{name}" for name in losses} <= documented


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """Including the API reference: a name that no longer exists causes a warning."""
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install 'cscct[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    completed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1200)
    assert completed.returncode == 0, completed.stderr
    page = (tmp_path / "reference.html").read_text()
    for name in ("run", "load", "compare", "Dataset", "losses.CrossSpaceClustering", "register_method", "structs.Step"):
        assert f'id="cscct.{name}"' in page
