"""Plugins: errors name the line that failed, and the sources are part of the identity of a run."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import settings_for
from cscct import plugins
from cscct.config import resolve
from cscct.errors import UserError
from cscct.losses import TERMS
from cscct.plugins import load_plugins, source_hashes
from cscct.runs.first_tasks import first_task_fingerprint
from cscct.runs.folder import RunFolder

LOSS = """
from dataclasses import dataclass
from cscct.losses import Term, register
from cscct.methods import METHODS, Method
from cscct.methods import register as register_method

@register
@dataclass(frozen=True)
class Shrink(Term):
    \"\"\"The mean square of the features.\"\"\"
    name = "shrink"
    first_task = True
    reads_teacher = False

    def value(self, step):
        return step.student.features.square().mean() * 1.0

register_method(Method("shrinking", "small features", {"loss": {"cross_entropy": {}, "shrink": {}}}))
"""
BACKBONE = """
from cscct import register_backbone
from cscct.nets import GrowingBackbone
@register_backbone("broken")
def broken(channels, depth, generator):
    return GrowingBackbone()
"""
SMALL = ("--set", "train.epochs=1", "--set", "data.train_per_class=8", "--set", "data.classes=4", "-B", "2", "-C", "2")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import math\n\nx = math.sqroot(2)\n", r"line 3: AttributeError: module 'math' has no attribute 'sqroot'"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", r"line 2: ZeroDivisionError: division by zero"),
        ("import json\n\njson.loads('{')\n", r"line 3: JSONDecodeError: "),
        ("x = 1\nif x\n    y = 2\n", r"line 2: SyntaxError: expected ':'"),
        (
            "from cscct.data.registry import DATASETS, register\n\nregister(DATASETS['digits'])\n",
            r"line 3: The dataset 'digits' is already registered",
        ),
        ("import absent_module_xyz\n", r"line 1: ModuleNotFoundError: No module named 'absent_module_xyz'"),
    ],
    ids=["attribute", "in a function", "in a library", "syntax", "taken name", "missing module"],
)
@pytest.mark.parametrize("relative", [False, True])
def test_the_failing_line_is_named(
    code: str, message: str, relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("mine.py") if relative else tmp_path / "mine.py"
    file.write_text(code, encoding="utf-8")
    with pytest.raises(UserError, match=rf"^The plugin .*mine\.py cannot be loaded, {message}.*\.$"):
        load_plugins([file])


def test_a_backbone_that_cannot_be_built_is_named(cscct: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BACKBONE)
    completed = cscct(
        "run", "replay", "digits", "--plugin", "broken.py", *SMALL, "--set", "network.backbone=broken", "--out", "run"
    )
    assert completed.returncode == 2
    assert re.search(r"The plugin failed in .*broken.py, line 6: TypeError: .* 'width'", completed.stderr)
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "run").exists()


def test_an_installed_plugin_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin.py").write_text("x = 1\nraise RuntimeError('no licence')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("mine", "broken_plugin", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    with pytest.raises(
        UserError, match=r"installed plugin mine .*RuntimeError: no licence \(.*broken_plugin\.py, line 2\)"
    ):
        load_plugins()


def test_a_changed_plugin_makes_another_run(cscct: Any, tmp_path: Path) -> None:
    plugin, run = tmp_path / "shrink.py", tmp_path / "run"
    plugin.write_text(LOSS)
    (tmp_path / "unrelated.py").write_text("")
    command = ("run", "shrinking", "digits", "--plugin", "shrink.py", *SMALL, "--threads", "1", "--quiet")
    first = cscct(*command, "--plugin", "unrelated.py", "--out", "run", "--first-task-cache", "first")
    assert first.returncode == 0, first.stderr
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert list(config["plugins"]) == ["shrink.py"]
    assert cscct(*command, "--out", "run").returncode == 0  # finished

    plugin.write_text(LOSS.replace("* 1.0", "* 2.0"))
    changed = r"The run in run cannot be continued or reused: the plugin shrink.py has changed since it was started"
    again = cscct(*command, "--out", "run")
    assert again.returncode == 2
    assert changed in again.stderr
    assert "(--out)" in again.stderr
    other = cscct(*command, "--out", "other", "--first-task-cache", "first")
    assert other.returncode == 0, other.stderr
    assert len(list((tmp_path / "first").glob("*.safetensors"))) == 2
    assert RunFolder(tmp_path / "other").result()["weights_sha256"] != RunFolder(run).result()["weights_sha256"]
    assert cscct("run", "--config", "run/config.yaml", "--plugin", "shrink.py", "--out", "third").returncode == 0

    (run / "result.json").unlink()  # unfinished
    for refused in (cscct(*command, "--out", "run"), cscct("resume", "run", "--plugin", "shrink.py")):
        assert refused.returncode == 2
        assert changed in refused.stderr
    plugin.write_text(LOSS)
    resumed = cscct("resume", "run", "--plugin", "shrink.py", "--quiet")
    assert resumed.returncode == 0, resumed.stderr


def test_runs_without_plugins_have_no_section_for_them(tmp_path: Path) -> None:
    settings = settings_for("lucir", "digits")
    assert settings.plugins == {}
    assert "plugins" not in settings.dump()
    folder = RunFolder(tmp_path / "run")
    folder.create(settings)
    assert folder.state(settings) == "unfinished"
    loaded = settings.model_copy(update={"plugins": {"mine.py": "0" * 16}})
    with pytest.raises(UserError, match=r"started without the plugin mine\.py: leave the plugin out"):
        folder.state(loaded)
    folder.create(loaded)
    for check in (lambda: folder.state(settings), folder.settings):
        with pytest.raises(UserError, match=r"started with the plugin mine\.py, which is not loaded"):
            check()
    with pytest.raises(UserError, match="plugins is not set with --set"):
        settings_for("lucir", "digits", "plugins.mine=1")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with a loss and a module that the loss may use."""
    folder = tmp_path / "shrinking_package"
    folder.mkdir()
    for name, code in (
        ("__init__.py", ""),
        ("losses.py", LOSS.replace("register_method(", "(")),
        ("tools.py", "A = 1"),
    ):
        (folder / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("shrinking_package.losses")
    yield folder
    del TERMS["shrink"]
    for name in [name for name in sys.modules if name.startswith("shrinking_package")]:
        del sys.modules[name]


def test_all_files_of_an_installed_package_count_where_a_run_uses_it(package: Path) -> None:
    with_loss = settings_for("lucir", "digits", "loss.shrink.weight=1")
    assert list(with_loss.plugins) == ["shrinking_package"]
    assert settings_for("lucir", "digits").plugins == {}
    assert resolve(config=with_loss.dump()) == with_loss
    (package / "tools.py").write_text("A = 2")
    assert source_hashes(["shrinking_package.losses"]) == with_loss.plugins  # the code in memory has not changed
    plugins._package_hash.cache_clear()
    changed = settings_for("lucir", "digits", "loss.shrink.weight=1")
    assert changed.plugins != with_loss.plugins
    assert first_task_fingerprint(changed, "") != first_task_fingerprint(with_loss, "")
