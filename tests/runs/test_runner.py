"""One run: what ends it, what it remembers, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from conftest import Silent, settings_for
from cscct.api import run_settings
from cscct.errors import Interrupted, RunFailed, UserError
from cscct.learn.dataset import load_dataset
from cscct.learn.learner import Learner
from cscct.runs import runner
from cscct.runs.files import locked
from cscct.runs.folder import CONFIG, RunFolder
from cscct.runs.runner import execute

SMALL = ("train.epochs=1", "data.train_per_class=12", "data.classes=4", "protocol.base=2", "runtime.threads=1")
FAILING = """
from dataclasses import dataclass
from cscct.losses import Term, register
from cscct.methods import Method
from cscct.methods import register as register_method

@register
@dataclass(frozen=True)
class Broken(Term):
    \"\"\"Fails in the second task.\"\"\"
    name = "broken"

    def value(self, step):
        return {}["nothing"]

register_method(Method("broken", "fails", {"loss": {"cross_entropy": {}, "broken": {}}}, like="lucir"))
"""


def go(folder: Path, *sets: str, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    settings = settings_for("lucir+cscct", "digits", *SMALL, *sets)
    return execute(settings, load_dataset(settings, None, print), RunFolder(folder), stop=stop)


def test_an_exception_in_a_plugin_ends_the_run_as_failed_with_file_and_line(cscct: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(FAILING)
    sets = [word for one in SMALL for word in ("--set", one)]
    done = cscct("run", "broken", "digits", "--plugin", "broken.py", "--out", "run", "--quiet", *sets)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "broken.py, line 14: KeyError" in done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "failed"
    assert "line 14" in result["error"]


def test_an_exception_of_our_own_is_recorded_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Learner, "evaluate", fail)
    with pytest.raises(ZeroDivisionError):
        go(tmp_path / "run")
    result = RunFolder(tmp_path / "run").result()
    assert (result["status"], result["error"]) == ("failed", "ZeroDivisionError: a bug")


def test_weights_that_are_not_finite_after_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Learner._train

    def spoil(self: Learner, *arguments: Any) -> None:
        real(self, *arguments)
        with torch.no_grad():
            self.network.head.new_weight[0, 0] = torch.nan

    monkeypatch.setattr(Learner, "_train", spoil)
    with pytest.raises(RunFailed, match=r"head\.new_weight are not finite after task 1"):
        go(tmp_path / "run")
    assert RunFolder(tmp_path / "run").result()["status"] == "failed"


def test_features_that_overflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights that are finite."""
    real = Learner._train

    def spoil(self: Learner, *arguments: Any) -> None:
        real(self, *arguments)
        norms = [one for one in self.network.backbone.modules() if isinstance(one, torch.nn.BatchNorm2d)]
        with torch.no_grad():
            for norm in norms:
                norm.weight.fill_(1e30)

    monkeypatch.setattr(Learner, "_train", spoil)
    with pytest.raises(RunFailed, match="of the class means are not finite after task 1"):
        go(tmp_path / "run")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_a_folder_that_cannot_be_made(error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=f"cannot be used for results .{error.strerror}.: choose another with --out"):
        go(tmp_path / "run")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match=r"is a file|cannot be used"):
            go(out)


def test_a_kill_while_the_config_is_written_leaves_a_free_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f".{CONFIG}.tmp").write_text("method: luc")
    (tmp_path / "run" / ".lock").touch()
    assert go(tmp_path / "run")["status"] == "finished"


def test_another_run_is_named_by_what_differs(tmp_path: Path) -> None:
    go(tmp_path / "run")
    with pytest.raises(UserError, match=r"another run: train\.lr is 0\.1 there, not 0\.2\."):
        go(tmp_path / "run", "train.lr=0.2")
    assert go(tmp_path / "run", "runtime.threads=2")["status"] == "finished"  # the same run on other threads


def test_another_precision_is_another_run(tmp_path: Path) -> None:
    """It was not told from its twin in version 0.2."""
    go(tmp_path / "run")
    with pytest.raises(UserError, match=r"numerics\.precision is 32-true there, not bf16-mixed"):
        go(tmp_path / "run", "runtime.precision=bf16-mixed")  # by its old name


def test_what_is_to_be_done_is_decided_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finishes the run between our start and our lock: its result is read, not emptied."""
    finished = go(tmp_path / "other")

    @contextmanager
    def locked_late(folder: Path) -> Iterator[None]:
        shutil.copytree(tmp_path / "other", folder, dirs_exist_ok=True)
        with locked(folder):
            yield

    monkeypatch.setattr(runner, "locked", locked_late)
    assert go(tmp_path / "run") == finished


def photographs(folder: Path, classes: int) -> Path:
    for part, count in (("train", 4), ("test", 1)):
        for label in range(classes):
            for i in range(count):
                path = folder / part / f"class{label}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (20, 20), (40 * label, 10 * i, 90)).save(path)
    return folder


FOLDER = ("train.epochs=1", "data.transform.size=16", "network.depth=8", "runtime.threads=1", "protocol.base=2")


def test_a_finished_run_notices_other_data(tmp_path: Path) -> None:
    settings = settings_for("lucir", "folder", *FOLDER)
    few, more = photographs(tmp_path / "few", 3), photographs(tmp_path / "more", 4)
    run_settings(settings, out=tmp_path / "run", data_dir=few)
    with pytest.raises(UserError, match=r"dataset has changed|another run"):
        run_settings(settings, out=tmp_path / "run", data_dir=more)


def test_resume_remembers_where_the_data_was(cscct: Any, tmp_path: Path) -> None:
    settings, data = settings_for("lucir", "folder", *FOLDER), photographs(tmp_path / "photos", 3)
    with pytest.raises(Interrupted, match="cscct resume"):
        run_settings(settings, out=tmp_path / "run", data_dir=data, stop=lambda: True)
    done = cscct("resume", "run", "--quiet")
    assert done.returncode == 0, done.stderr


def test_the_way_to_go_on_names_the_plugins(cscct: Any, tmp_path: Path) -> None:
    """They are code: a folder that somebody else made cannot have them loaded."""
    plugin = Path(__file__).parents[2] / "examples" / "rkd.py"
    folder = RunFolder(tmp_path / "run")
    settings = settings_for("lucir", "digits", *SMALL)
    with pytest.raises(Interrupted, match=f"cscct resume .*run --plugin .*{plugin.name}"):
        run_settings(settings, out=folder.path, plugins=[plugin], stop=lambda: True)
    config = folder.path / CONFIG
    config.write_text(config.read_text().replace("method: lucir", "method: rkd"))
    told = cscct("resume", "run")
    assert told.returncode == 2
    assert "There is no method 'rkd'" in told.stderr
    assert f"started with --plugin {plugin}" in told.stderr


def test_listeners_are_told_of_a_finished_run(tmp_path: Path) -> None:
    settings = settings_for("lucir+cscct", "digits", *SMALL)
    dataset, heard = load_dataset(settings, None, print), list[Path]()

    class Told(Silent):
        def found_finished(self, result: Any, folder: Path) -> None:
            heard.append(folder)

    for _ in range(2):
        execute(settings, dataset, RunFolder(tmp_path / "run"), Told())
    assert heard == [tmp_path / "run"]


def test_a_picture_replaced_by_one_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    settings, data = settings_for("lucir", "folder", *FOLDER), photographs(tmp_path / "photos", 3)
    run_settings(settings, out=tmp_path / "run", data_dir=data)
    picture = data / "train" / "class0" / "0.png"
    content = bytearray(picture.read_bytes())
    other = (data / "train" / "class0" / "1.png").read_bytes()
    assert len(other) == len(content)
    picture.write_bytes(other)
    with pytest.raises(UserError, match="dataset has changed"):
        run_settings(settings, out=tmp_path / "run", data_dir=data)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
            "not enough memory",
        ),
        (
            ValueError("Expected more than 1 value per channel when training, got input size [1, 64, 1, 1]"),
            "single image",
        ),
    ],
)
def test_what_torch_says_in_its_own_words_is_a_sentence(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Learner, "evaluate", fail)
    with pytest.raises(RunFailed, match=said):
        go(tmp_path / "run")
    assert said in RunFolder(tmp_path / "run").result()["error"]


def test_more_threads_than_any_machine_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"runtime\.threads is 100000"):
        settings_for("lucir", "digits", "runtime.threads=100000")
