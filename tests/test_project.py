"""Project files: workflows, hooks, issue templates, package metadata, and install hints in messages."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cscct.errors import install_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_make_targets(path: Path) -> None:
    workflow = read(path)
    assert workflow[True]  # `on`, which YAML 1.1 reads as a boolean
    assert workflow["permissions"] == {"contents": "read"}
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert len(commands) >= len(workflow["jobs"])
    for command in commands:
        program, target, *variables = command.split()
        assert program == "make"
        assert target in TARGETS, command
        for variable in variables:
            assert re.search(rf"^{variable.partition('=')[0]} \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_workflows_cover_lint_tests_docs_build_and_lowest_versions() -> None:
    called = {step["run"].split()[1] for path in WORKFLOWS for step in steps(read(path)) if "run" in step}
    assert called == {"lint", "check", "docs", "build", "test-lowest"}


def test_tests_run_on_the_declared_python_versions() -> None:
    (versions,) = [
        job["strategy"]["matrix"]["python"]
        for path in WORKFLOWS
        for job in read(path)["jobs"].values()
        if "strategy" in job
    ]
    prefix = "Programming Language :: Python :: 3."
    assert versions == [f"3.{name.removeprefix(prefix)}" for name in PROJECT["classifiers"] if name.startswith(prefix)]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_project_urls_agree() -> None:
    urls = PROJECT["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    home = urls["Homepage"]
    assert all(url.startswith(home) for url in urls.values())
    assert read(ROOT / "CITATION.cff")["repository-code"] == home
    links = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]
    assert len(links) == 2
    assert all(link["url"].startswith(home) for link in links)


def test_the_changelog_and_the_citation_have_the_current_version() -> None:
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()
    assert read(ROOT / "CITATION.cff")["version"] == PROJECT["version"]


def test_install_hints_name_both_commands() -> None:
    assert install_hint("serve") == "pip install 'cscct[serve]', or in a clone: pip install -e '.[serve]'"


def test_messages_use_install_hints_of_existing_extras() -> None:
    extras, hints = set(PROJECT["optional-dependencies"]), []
    for path in (ROOT / "src" / "cscct").rglob("*.py"):
        text = path.read_text()
        hints += re.findall(r"install_hint\([\"'](\w+)[\"']\)", text)
        if path.name != "errors.py":
            assert "pip install 'cscct" not in text, f"{path} must use install_hint"
    assert {"serve", "onnx", "ray", "tensorboard", "pretrained", "pandas"} <= set(hints) <= extras
