"""Plugins that cannot be loaded are told with the line that failed."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from cscct import plugins
from cscct.errors import UserError
from cscct.plugins import load_plugins


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import math\n\nx = math.sqroot(2)\n", r"line 3: AttributeError: module 'math' has no attribute 'sqroot'"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", r"line 2: ZeroDivisionError: division by zero"),
        ("import json\n\njson.loads('{')\n", r"line 3: JSONDecodeError: "),
        ("x = 1\nif x\n    y = 2\n", r"line 2: SyntaxError: expected ':'"),
        (
            "from cscct.data.registry import DATASETS, register\n\nregister(DATASETS['digits'])\n",
            r"line 3: There is already a dataset called 'digits'",
        ),
        ("import absent_module_xyz\n", r"line 1: ModuleNotFoundError: No module named 'absent_module_xyz'"),
    ],
    ids=["attribute", "in a function", "in a library", "syntax", "taken name", "missing module"],
)
@pytest.mark.parametrize("relative", [False, True])
def test_the_failing_line_is_named(
    code: str, said: str, relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("mine.py") if relative else tmp_path / "mine.py"
    file.write_text(code, encoding="utf-8")
    with pytest.raises(UserError, match=rf"^The plugin .*mine\.py cannot be loaded, {said}.*\.$"):
        load_plugins([file])


def test_an_installed_plugin_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin.py").write_text("x = 1\nraise RuntimeError('no licence')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("mine", "broken_plugin", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    with pytest.raises(
        UserError, match=r"installed plugin mine .*RuntimeError: no licence \(.*broken_plugin\.py, line 2\)"
    ):
        load_plugins()
