"""A run can be stopped anywhere and taken up again as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import Silent, run_command, settings_for, signal_plugin, without_timings
from cscct.config import Settings
from cscct.errors import Interrupted, RunFailed, UserError
from cscct.learn.dataset import load_dataset
from cscct.learn.protocol import complete
from cscct.runs import files
from cscct.runs import folder as folder_module
from cscct.runs.checkpoints import Checkpoints
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute

BASES = ("icarl", "lucir", "podnet")
SMALL = ("train.epochs=2", "data.train_per_class=24", "data.classes=6", "protocol.base=2", "runtime.threads=1")
FINE = ("finetune.epochs=2",)
EVERY_STEP = "checkpoint.minutes=0"
KILLS = int(os.environ.get("CSCCT_KILLS", "3"))  # `make soak` asks for more


def small(base: str, *sets: str) -> Settings:
    settings = settings_for(f"{base}+cscct", "digits", *SMALL, *(FINE if base == "podnet" else ()), *sets)
    return complete(settings, load_dataset(settings, None, print))


def go(folder: Path, settings: Settings, stop: Callable[[], bool] = lambda: False) -> tuple[dict[str, Any], Silent]:
    listener = Silent()
    dataset = load_dataset(settings, None, print)
    run = RunFolder(folder)
    return execute(settings, dataset, run, listener, listener.warnings.append, None, stop), listener


def history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "images_per_second"} for line in lines]


def same(one: Path, other: Path) -> None:
    """The weights' hash is in the result."""
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
    assert results[0]["status"] == "finished"
    assert without_timings(results[0]) == without_timings(results[1])
    assert history(one) == history(other)
    for kept in sorted((one / "tasks").iterdir()):
        assert kept.read_bytes() == (other / "tasks" / kept.name).read_bytes()
    assert not (other / "checkpoints").exists()


class After:
    """Says stop at the n-th time it is asked."""

    def __init__(self, steps: int):
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of each base that nothing disturbs."""
    done: dict[str, Path] = {}

    def of(base: str) -> Path:
        if base not in done:
            done[base] = tmp_path_factory.mktemp(base) / "run"
            go(done[base], small(base))
        return done[base]

    return of


@pytest.mark.parametrize("base", BASES)
def test_stopped_every_few_steps(base: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    """In every task and stage, at the ends of epochs and in their midst."""
    settings, stops, finished = small(base), 0, False
    stages = set()
    while not finished:
        try:
            go(tmp_path / "run", settings, After(2))
            finished = True
        except Interrupted:
            stops += 1
            newest = Checkpoints(tmp_path / "run" / "checkpoints").latest(print)
            assert newest is not None
            stage = newest.state["stage"]
            stages.add((newest.state["task"], stage["name"], stage["position"]["epoch"]))
    assert stops >= 5
    assert {task for task, _, _ in stages} == {0, 1, 2}
    assert ("finetune" in {stage for _, stage, _ in stages}) == (base == "podnet")
    same(whole(base), tmp_path / "run")


def test_what_a_loss_knows_of_the_classes_is_known_after_a_stop(tmp_path: Path) -> None:
    settings = settings_for("lucir+balanced", "digits", *SMALL)
    settings = complete(settings, load_dataset(settings, None, print))
    go(tmp_path / "whole", settings)
    stops, finished = 0, False
    while not finished:
        try:
            go(tmp_path / "run", settings, After(3))
            finished = True
        except Interrupted:
            stops += 1
    assert stops >= 3
    same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("base", BASES)
def test_killed_at_random_instants(base: str, tmp_path: Path) -> None:
    """SIGKILL, checkpoints after every step; the kills are spread over all of the run, and every one hits it."""
    epochs = 2 + KILLS
    more = [f"train.epochs={epochs}"]
    go(tmp_path / "whole", small(base, *more))
    sets = [*SMALL, *(FINE if base == "podnet" else ()), *more, EVERY_STEP]
    words = ["run", f"{base}+cscct", "digits", *(word for one in sets for word in ("--set", one)), "--out", "run"]
    rng = random.Random(f"{base}{KILLS}")
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    total, written = 7 * epochs + 2, 0  # an epoch has 7 steps in all tasks together; and each task but the last an end
    for kill in range(KILLS):
        after = max(1, total * (kill + 1) // (KILLS + 1) - rng.randint(0, 2) - written)
        after = 0 if kill % 4 == 3 else after  # while it starts or reads the checkpoint
        plugin = signal_plugin(tmp_path / f"kill{kill}.py", "run", after=after, wait=rng.uniform(0.001, 0.05))
        killed = run_command(tmp_path, *words, "--quiet", "--plugin", plugin.name)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        newest = checkpoints.latest(print)
        assert newest is not None
        written = checkpoints._numbers()[-1]
        words = ["resume", "run"]
    assert newest.state["task"] == 2
    done = run_command(tmp_path, "resume", "run", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    same(tmp_path / "whole", tmp_path / "run")


def die_at(point: int, folder: Path, settings: Settings) -> int:
    """In a child: the process ends at the n-th call with which the third checkpoint synchronises, renames or removes
    a file; by then there are two, and the older has to go."""
    child = os.fork()
    if child == 0:
        saves, calls = [0], [0]

        def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                if saves[0] == 3:
                    calls[0] += 1
                    if calls[0] == point:
                        os._exit(9)
                return real(*arguments, **named)

            return call

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                saves[0] += 1
                real(*arguments)
                if saves[0] == 3:
                    os._exit(0)  # it was written without reaching the point: there are no more

            return call

        os.fsync = deadly(os.fsync)
        Path.replace = deadly(Path.replace)  # type: ignore[method-assign]
        Path.unlink = deadly(Path.unlink)  # type: ignore[method-assign]
        Checkpoints.save = counted(Checkpoints.save)  # type: ignore[method-assign]
        try:
            go(folder, settings)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_process_ends_at_every_write_point_of_a_checkpoint(tmp_path: Path) -> None:
    settings = small("lucir", EVERY_STEP, "data.classes=4")
    go(tmp_path / "whole", settings)
    codes = []
    for point in range(1, 30):
        folder = tmp_path / f"run-{point}"
        codes.append(die_at(point, folder, settings))
        go(folder, settings)
        same(tmp_path / "whole", folder)
        if codes[-1] != 9:
            break
    # two files, each synchronised, renamed, and its folder synchronised; then two removed; then no more
    assert codes == [9] * 8 + [0]


def halfway(folder: Path, settings: Settings, steps: int = 8) -> Checkpoints:
    with pytest.raises(Interrupted, match=f"cscct resume {folder}"):
        go(folder, settings, After(steps))
    return Checkpoints(folder / "checkpoints")


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "missing"])
def test_damage_is_noticed_and_the_one_before_used(suffix: str, damage: str, tmp_path: Path) -> None:
    settings = small("lucir", EVERY_STEP)
    go(tmp_path / "whole", settings)
    checkpoints = halfway(tmp_path / "run", settings)
    files_there = sorted(path.name for path in checkpoints.folder.iterdir())
    assert len(files_there) == 4  # the newest two
    newest = sorted(checkpoints.folder.glob(f"*.{suffix}"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    changed = {"flip": bytes(content), "truncate": bytes(content[: len(content) // 2]), "empty": b""}
    if damage == "missing":
        newest.unlink()
    else:
        newest.write_bytes(changed[damage])
    _, listener = go(tmp_path / "run", settings)
    noticed = [warning for warning in listener.warnings if "damaged" in warning]
    assert len(noticed) == (0 if (damage, suffix) == ("missing", "json") else 1)
    same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("content", [b"[]", b"null", b"{}", b"7", b"\xff\xfe", b"[" * 20000, b'{"sha256": "x"}'])
def test_a_checkpoint_that_holds_something_else_is_passed_over(content: bytes, tmp_path: Path) -> None:
    checkpoints, warnings = Checkpoints(tmp_path / "checkpoints"), list[str]()
    for number in (1, 2):
        checkpoints.save({"x": torch.zeros(2)}, {"number": number})
    max(checkpoints.folder.glob("*.json")).write_bytes(content)
    found = checkpoints.latest(warnings.append)
    assert found is not None
    assert found.state == {"number": 1}
    assert ["checkpoint-000002.json is damaged" in warning for warning in warnings] == [True]


@pytest.mark.parametrize(
    "change", [{"exemplars": []}, {"task": None, "stage": {}}, {"settings": 3}, {"metrics_size": ""}]
)
def test_a_checkpoint_with_odd_values_is_refused_with_a_sentence(change: dict[str, Any], tmp_path: Path) -> None:
    settings = small("lucir", EVERY_STEP)
    checkpoints = halfway(tmp_path / "run", settings)
    saved = checkpoints.latest(print)
    assert saved is not None
    checkpoints.save(saved.tensors, {**saved.state, **change})
    with pytest.raises(UserError, match="does not fit"):
        go(tmp_path / "run", settings)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_pipe_in_the_place_of_a_checkpoint_is_not_waited_for(suffix: str, tmp_path: Path) -> None:
    checkpoints, warned = Checkpoints(tmp_path), list[str]()
    for number in range(2):
        checkpoints.save({"weight": torch.ones(2)}, {"number": number})
    newest = tmp_path / f"checkpoint-000002{suffix}"
    newest.unlink()
    os.mkfifo(newest)
    found = checkpoints.latest(warned.append)
    assert found is not None
    assert found.state == {"number": 0}
    assert f"{newest.name} is no file" in warned[0]


def test_another_patch_version_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small("lucir", EVERY_STEP)
    halfway(tmp_path / "run", settings)
    major, minor, _ = folder_module.__version__.split(".")[:3]
    monkeypatch.setattr(folder_module, "__version__", f"{major}.{minor}.77")
    result, _ = go(tmp_path / "run", settings)
    assert result["status"] == "finished"
    monkeypatch.setattr(folder_module, "__version__", f"{major}.{int(minor) + 1}.0")
    with pytest.raises(UserError, match="not continued"):
        go(tmp_path / "run", settings)


def test_with_all_checkpoints_damaged_it_starts_over(tmp_path: Path) -> None:
    settings = small("icarl", EVERY_STEP)
    go(tmp_path / "whole", settings)
    for path in halfway(tmp_path / "run", settings).folder.iterdir():
        path.write_bytes(b"x")
    _, listener = go(tmp_path / "run", settings)
    assert len([warning for warning in listener.warnings if "damaged" in warning]) == 2
    same(tmp_path / "whole", tmp_path / "run")


def test_a_full_disk_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    settings = small("podnet", EVERY_STEP)
    go(tmp_path / "whole", settings)
    halfway(tmp_path / "run", settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a checkpoint is larger
    try:
        with pytest.raises(RunFailed, match=r"Nothing more can be written.*cscct resume"):
            go(tmp_path / "run", settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "run").rglob("*.tmp"))
    go(tmp_path / "run", settings)
    same(tmp_path / "whole", tmp_path / "run")


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    settings = small("lucir")
    halfway(tmp_path / "run", settings)
    with files.locked(tmp_path / "run"), pytest.raises(UserError, match=f"worked on by process {os.getpid()} on"):
        go(tmp_path / "run", settings)
    (tmp_path / "run" / files.HOLDER).write_text("process 1 on a machine that lost power")  # a lock of the dead
    go(tmp_path / "run", settings)


def test_changed_data_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small("lucir")
    halfway(tmp_path / "run", settings)
    dataset = load_dataset(settings, None, print)
    dataset.train.images.pixels[3, 0, 2, 2] ^= 1  # type: ignore[union-attr]
    with pytest.raises(UserError, match="dataset has changed"):
        execute(settings, dataset, RunFolder(tmp_path / "run"), Silent(), print)
    go(tmp_path / "run", settings)


def test_resume_from_the_command_line(cscct: Any, tmp_path: Path) -> None:
    assert cscct("resume", "nothing").returncode == 2
    settings = small("lucir")
    halfway(tmp_path / "run", settings)
    done = cscct("resume", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
    again = cscct("resume", "run")
    assert again.returncode == 0
    assert "finished already" in again.stderr
    RunFolder(tmp_path / "other").create(settings)
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text().replace("cscct_version: 0", "cscct_version: 99"))
    old = cscct("resume", "other")
    assert old.returncode == 2
    assert "was made by cscct 99" in old.stderr
    RunFolder(tmp_path / "fresh").create(settings)  # no checkpoint yet: it starts over
    assert cscct("resume", "fresh", "--quiet").returncode == 0
    same(tmp_path / "run", tmp_path / "fresh")


def test_ctrl_c_stops_with_a_checkpoint_and_says_how_to_go_on(cscct: Any, tmp_path: Path) -> None:
    sets = [word for one in (*SMALL, EVERY_STEP) for word in ("--set", one)]
    plugin = signal_plugin(tmp_path / "plugin.py", "run", after=3, number=signal.SIGINT)
    stopped = cscct("run", "lucir+cscct", "digits", *sets, "--out", "run", "--plugin", str(plugin))
    assert stopped.returncode == 130
    assert "cscct resume run" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert list((tmp_path / "run" / "checkpoints").glob("*.json"))
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "running"
