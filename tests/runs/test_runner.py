"""Execution of one run: failures, stored state and refused folders."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from conftest import run_command, settings_for
from cscct.errors import Interrupted, RunFailed, UserError
from cscct.experiments import Hooks, run_settings
from cscct.learn.learner import Learner
from cscct.runs import runner
from cscct.runs.folder import CONFIG, RunFolder
from cscct.runs.runner import execute
from cscct.storage import locked
from cscct.studies.datasets import load_dataset

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

register_method(Method("broken", "fails", {"loss": {"cross_entropy": {}, "broken": {}}}, preset_from="lucir"))
"""


def run_in(folder: Path, *sets: str, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    settings = settings_for("lucir+cscct", "digits", *SMALL, *sets)
    return execute(settings, load_dataset(settings, None, print), RunFolder(folder), stop=stop)


TASKS = {"[1, 3]": [1, 3], "[[3, 1, 8], [0]]": [["3", "1", "8"], ["0"]]}


@pytest.mark.parametrize("tasks", TASKS)
def test_tasks_of_any_size_or_with_named_classes(tasks: str, tmp_path: Path) -> None:
    words = ("--set", f"protocol.tasks={tasks}", *(word for text in SMALL[:3] for word in ("--set", text)))
    done = run_command(tmp_path, "compare", "lucir", "lda", "--seeds", "1", "--out", "out", "--threads", "1", *words)
    assert "tasks of" in done.stdout, done.stderr
    assert run_command(tmp_path, "report", "out").returncode == 0
    result = json.loads((tmp_path / "out" / "lucir-seed1" / "result.json").read_text())
    classes = [entry["classes"] for entry in result["tasks"]]
    assert TASKS[tasks] in (classes, [len(names) for names in classes])
    known = result["task_incremental"]
    assert [len(rows) for rows in (known["matrix"]["nme"], known["matrix"]["nme"][1])] == [2, 2]
    assert known["summary"]["lda"]["last_accuracy"] == result["tasks"][1]["task_incremental_accuracy"]["lda"]
    single = min(range(2), key=lambda index: len(classes[index]))  # a task with one class: nothing to confuse
    assert known["matrix"]["classifier"][1][single] == 100


def test_unknown_class_names_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for words in (["run", "lucir", "digits"], ["compare", "lucir", "icarl", "--seeds", "1"]):
        tasks = "protocol.tasks=[[0, 1, 2, 3, 4], [5, 6, 7, 8, 99]]"
        done = run_command(tmp_path, *words, "--out", "out", "--set", tasks)
        assert (done.returncode, "'99'" in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "out").exists()


def test_an_exception_in_a_plugin_fails_the_run_with_file_and_line(cscct: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(FAILING)
    sets = [argument for text in SMALL for argument in ("--set", text)]
    done = cscct("run", "broken", "digits", "--plugin", "broken.py", "--out", "run", "--quiet", *sets)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "broken.py, line 14: KeyError" in done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "failed"
    assert "line 14" in result["error"]


def test_an_unexpected_exception_is_recorded_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Learner, "evaluate", fail)
    with pytest.raises(ZeroDivisionError):
        run_in(tmp_path / "run")
    result = RunFolder(tmp_path / "run").result()
    assert (result["status"], result["error"]) == ("failed", "ZeroDivisionError: a bug")


def test_weights_that_are_not_finite_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Learner._run_stage

    def spoil(self: Learner, *arguments: Any) -> None:
        real(self, *arguments)
        with torch.no_grad():
            self.network.head.new_weight[0, 0] = torch.nan

    monkeypatch.setattr(Learner, "_run_stage", spoil)
    with pytest.raises(RunFailed, match=r"head\.new_weight are not finite after task 1"):
        run_in(tmp_path / "run")
    assert RunFolder(tmp_path / "run").result()["status"] == "failed"


def test_features_that_overflow_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with finite weights."""
    real = Learner._run_stage

    def spoil(self: Learner, *arguments: Any) -> None:
        real(self, *arguments)
        norms = [module for module in self.network.backbone.modules() if isinstance(module, torch.nn.BatchNorm2d)]
        with torch.no_grad():
            for norm in norms:
                norm.weight.fill_(1e30)

    monkeypatch.setattr(Learner, "_run_stage", spoil)
    with pytest.raises(RunFailed, match="of the class means are not finite after task 1"):
        run_in(tmp_path / "run")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_a_folder_that_cannot_be_created(error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=f"cannot be used for results .{error.strerror}.: choose another with --out"):
        run_in(tmp_path / "run")


def test_a_kill_while_the_config_is_written_leaves_a_free_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f".{CONFIG}.tmp").write_text("method: luc")
    (tmp_path / "run" / ".lock").touch()
    assert run_in(tmp_path / "run")["status"] == "finished"


def test_the_message_about_another_run_names_the_difference(tmp_path: Path) -> None:
    run_in(tmp_path / "run")
    with pytest.raises(UserError, match=r"another run: train\.lr was 0\.1 and is now 0\.2\."):
        run_in(tmp_path / "run", "train.lr=0.2")
    assert run_in(tmp_path / "run", "runtime.threads=2")["status"] == "finished"  # threads do not identify a run


def test_another_precision_is_another_run(tmp_path: Path) -> None:
    """Version 0.2 did not distinguish them."""
    run_in(tmp_path / "run")
    with pytest.raises(UserError, match=r"numerics\.precision was 32-true and is now bf16-mixed"):
        run_in(tmp_path / "run", "runtime.precision=bf16-mixed")  # the old name of the setting


def test_the_state_of_a_run_is_read_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process finishes the run between start and lock, its result is read and not overwritten."""
    finished = run_in(tmp_path / "other")

    @contextmanager
    def locked_late(folder: Path) -> Iterator[None]:
        shutil.copytree(tmp_path / "other", folder, dirs_exist_ok=True)
        with locked(folder):
            yield

    monkeypatch.setattr(runner, "locked", locked_late)
    assert run_in(tmp_path / "run") == finished


def make_photos(folder: Path, classes: int) -> Path:
    for part, count in (("train", 4), ("test", 1)):
        for label in range(classes):
            for i in range(count):
                path = folder / part / f"class{label}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (20, 20), (40 * label, 10 * i, 90)).save(path)
    return folder


FOLDER = ("train.epochs=1", "data.transform.size=16", "network.depth=8", "runtime.threads=1", "protocol.base=2")


class Started:
    """A listener that records whether the run has started."""

    value = False

    def run_started(self, *_: Any) -> None:
        self.value = True


def test_resume_uses_the_stored_data_folder(cscct: Any, tmp_path: Path) -> None:
    settings, data = settings_for("lucir", "folder", *FOLDER), make_photos(tmp_path / "photos", 3)
    started = Started()
    hooks = Hooks(listeners=[started], stop=lambda: started.value)
    with pytest.raises(Interrupted, match="cscct resume"):
        run_settings(settings, out=tmp_path / "run", data_dir=data, hooks=hooks)
    done = cscct("resume", "run", "--quiet")
    assert done.returncode == 0, done.stderr


def test_the_resume_command_names_the_plugins(cscct: Any, tmp_path: Path) -> None:
    """Plugins are code: they are never loaded because a run folder names them."""
    plugin = Path(__file__).parents[2] / "examples" / "rkd.py"
    folder = RunFolder(tmp_path / "run")
    settings = settings_for("lucir", "digits", *SMALL)
    with pytest.raises(Interrupted, match=f"cscct resume .*run --plugin .*{plugin.name}"):
        run_settings(settings, out=folder.path, plugins=[plugin], hooks=Hooks(stop=lambda: True))
    config = folder.path / CONFIG
    config.write_text(config.read_text().replace("method: lucir", "method: rkd"))
    refused = cscct("resume", "run")
    assert refused.returncode == 2
    assert "There is no method 'rkd'" in refused.stderr
    assert f"started with --plugin {plugin}" in refused.stderr


def test_an_image_replaced_by_one_of_the_same_size_is_detected(tmp_path: Path) -> None:
    settings, data = settings_for("lucir", "folder", *FOLDER), make_photos(tmp_path / "photos", 3)
    run_settings(settings, out=tmp_path / "run", data_dir=data)
    image = data / "train" / "class0" / "0.png"
    replacement = (data / "train" / "class0" / "1.png").read_bytes()
    assert len(replacement) == image.stat().st_size
    image.write_bytes(replacement)
    with pytest.raises(UserError, match="dataset has changed"):
        run_settings(settings, out=tmp_path / "run", data_dir=data)


@pytest.mark.parametrize(
    ("error", "message"),
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
def test_errors_of_torch_get_a_clear_message(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Learner, "evaluate", fail)
    with pytest.raises(RunFailed, match=message):
        run_in(tmp_path / "run")
    assert message in RunFolder(tmp_path / "run").result()["error"]
