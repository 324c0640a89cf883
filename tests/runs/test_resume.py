"""A run can be stopped at any point and continued with the same result."""

import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import Silent, settings_for, signal_plugin
from cscct.config import Settings
from cscct.errors import Interrupted, RunFailed, UserError
from cscct.learn.protocol import complete
from cscct.methods import METHODS
from cscct.runs import folder as folder_module
from cscct.runs.checkpoints import Checkpoints
from cscct.runs.exemplars import load_exemplars
from cscct.runs.first_tasks import FirstTaskCache
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.storage import HOLDER, locked
from cscct.studies.datasets import load_dataset
from interrupted import BASES, EVERY_STEP, SMALL, After, go, same, small


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The uninterrupted run of each base."""
    done: dict[str, Path] = {}

    def of(base: str) -> Path:
        if base not in done:
            done[base] = tmp_path_factory.mktemp(base) / "run"
            go(done[base], small(base))
        return done[base]

    return of


@pytest.mark.parametrize("base", BASES)
def test_stopped_every_few_steps(base: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    """In every task and stage, at the end of epochs and within them."""
    settings, stops, finished = small(base), 0, False
    stages = set()
    while not finished:
        try:
            go(tmp_path / "run", settings, After(2))
            finished = True
        except Interrupted:
            stops += 1
            newest = Checkpoints(tmp_path / "run" / "checkpoints").latest(print)
            stage = newest.state["stage"]
            stages.add((newest.state["task"], stage["name"], stage["position"]["epoch"]))
    assert stops >= 5
    assert {task for task, _, _ in stages} == {0, 1, 2}
    assert ("finetune" in {stage for _, stage, _ in stages}) == (base == "podnet")
    same(whole(base), tmp_path / "run")


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("AdamW", "{amsgrad: true}"), ("RMSprop", "{centered: true}")],
)
def test_the_state_of_any_optimiser_survives_a_stop(optimizer: str, options: str, tmp_path: Path) -> None:
    chosen = {"optimizer": optimizer, "optimizer_options": options, "lr": 0.01}
    sets = [f"{stage}.{key}={value}" for stage in ("train", "finetune") for key, value in chosen.items()]
    stopped_and_continued(tmp_path, small("podnet", *sets))


@pytest.mark.parametrize(
    ("method", "sets"),
    [
        ("lucir+balanced", ()),
        ("replay", ("train.sampler=mixed", "train.views=2", "data.transform.augment=[randaugment, cutout, mixup]")),
    ],
)
def test_class_statistics_and_batches_survive_a_stop(method: str, sets: tuple[str, ...], tmp_path: Path) -> None:
    settings = settings_for(method, "digits", *SMALL, *sets)
    stopped_and_continued(tmp_path, complete(settings, load_dataset(settings, None, print)))


def stopped_and_continued(folder: Path, settings: Settings) -> None:
    """Stop a run after every third step, and compare it with an uninterrupted one."""
    go(folder / "whole", settings)
    stops, finished = 0, False
    while not finished:
        try:
            finished = bool(go(folder / "run", settings, After(3)))
        except Interrupted:
            stops += 1
    assert stops >= 3
    same(folder / "whole", folder / "run")


@pytest.mark.parametrize("name", METHODS)
def test_every_method(name: str, tmp_path: Path) -> None:
    """Stopped in every task and stage, and with a shared first task: identical weights and state of the extension."""
    settings = small(name)
    trains = METHODS[name].trains
    steps = 2 if name == "gdumb" else 3  # between two stops; it trains on the memory alone, in few steps
    go(tmp_path / "whole", settings)
    cache, stops, finished = FirstTaskCache(tmp_path / "first"), 0, False
    while not finished:
        try:
            go(tmp_path / "stopped", settings, After(steps if trains else 1), cache)
            finished = True
        except Interrupted:
            stops += 1
    assert stops >= (3 if trains else 2)
    assert bool(load_exemplars(tmp_path / "whole").extension) == (
        "extension" in METHODS[name].settings and name != "a-gem"
    )
    same(tmp_path / "whole", tmp_path / "stopped")
    if trains:
        assert len(list((tmp_path / "first").iterdir())) == 1
        go(tmp_path / "shared", settings, cache=cache)
        same(tmp_path / "whole", tmp_path / "shared", trained=False)


def die_at(point: int, folder: Path, settings: Settings) -> int:
    """Run in a child process that ends at the n-th call that synchronises, renames or removes a file for the third
    checkpoint. By then two checkpoints exist, and the older one is removed."""
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
                    os._exit(0)  # the checkpoint was written: no more points

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
def test_a_damaged_checkpoint_is_skipped(
    suffix: str, damage: str, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    settings = small("lucir", EVERY_STEP)
    checkpoints = halfway(tmp_path / "run", settings)
    assert len(list(checkpoints.folder.iterdir())) == 4  # two files for each of two checkpoints
    newest = sorted(checkpoints.folder.glob(f"*.{suffix}"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    changed = {"flip": bytes(content), "truncate": bytes(content[: len(content) // 2]), "empty": b""}
    if damage == "missing":
        newest.unlink()
    else:
        newest.write_bytes(changed[damage])
    _, listener = go(tmp_path / "run", settings)
    damaged = [warning for warning in listener.warnings if "damaged" in warning]
    assert len(damaged) == (0 if (damage, suffix) == ("missing", "json") else 1)
    same(whole("lucir"), tmp_path / "run")


@pytest.mark.parametrize("content", [b"[]", b"null", b"{}", b"7", b"\xff\xfe", b"[" * 20000, b'{"sha256": "x"}'])
def test_a_checkpoint_with_other_content_is_skipped(content: bytes, tmp_path: Path) -> None:
    checkpoints, warnings = Checkpoints(tmp_path / "checkpoints"), list[str]()
    for number in (1, 2):
        checkpoints.save({"x": torch.zeros(2)}, {"number": number})
    max(checkpoints.folder.glob("*.json")).write_bytes(content)
    checkpoint = checkpoints.latest(warnings.append)
    assert checkpoint.state == {"number": 1}
    assert ["checkpoint-000002.json is damaged" in warning for warning in warnings] == [True]


@pytest.mark.parametrize(
    "change", [{"exemplars": []}, {"task": None, "stage": {}}, {"settings": 3}, {"metrics_size": ""}]
)
def test_a_checkpoint_with_invalid_values_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    settings = small("lucir", EVERY_STEP)
    checkpoints = halfway(tmp_path / "run", settings)
    saved = checkpoints.latest(print)
    checkpoints.save(saved.tensors, {**saved.state, **change})
    with pytest.raises(UserError, match="does not fit"):
        go(tmp_path / "run", settings)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_pipe_in_place_of_a_checkpoint_does_not_block(suffix: str, tmp_path: Path) -> None:
    checkpoints, warned = Checkpoints(tmp_path), list[str]()
    for number in range(2):
        checkpoints.save({"weight": torch.ones(2)}, {"number": number})
    newest = tmp_path / f"checkpoint-000002{suffix}"
    newest.unlink()
    os.mkfifo(newest)
    checkpoint = checkpoints.latest(warned.append)
    assert checkpoint.state == {"number": 0}
    assert f"{newest.name} is not a regular file" in warned[0]


def test_another_patch_version_continues_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small("lucir", EVERY_STEP)
    halfway(tmp_path / "run", settings)
    major, minor, _ = folder_module.__version__.split(".")[:3]
    monkeypatch.setattr(folder_module, "__version__", f"{major}.{minor}.77")
    result, _ = go(tmp_path / "run", settings)
    assert result["status"] == "finished"
    monkeypatch.setattr(folder_module, "__version__", f"{major}.{int(minor) + 1}.0")
    with pytest.raises(UserError, match="not continued"):
        go(tmp_path / "run", settings)


def test_a_run_with_damaged_checkpoints_only_starts_again(whole: Callable[[str], Path], tmp_path: Path) -> None:
    settings = small("icarl", EVERY_STEP)
    for path in halfway(tmp_path / "run", settings).folder.iterdir():
        path.write_bytes(b"x")
    _, listener = go(tmp_path / "run", settings)
    assert len([warning for warning in listener.warnings if "damaged" in warning]) == 2
    same(whole("icarl"), tmp_path / "run")


def test_a_full_disk_ends_the_run_with_a_message(whole: Callable[[str], Path], tmp_path: Path) -> None:
    settings = small("podnet", EVERY_STEP)
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
    same(whole("podnet"), tmp_path / "run")


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    settings = small("lucir")
    halfway(tmp_path / "run", settings)
    with locked(tmp_path / "run"), pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
        go(tmp_path / "run", settings)
    (tmp_path / "run" / HOLDER).write_text("process 1 on a machine that lost power")
    go(tmp_path / "run", settings)


def test_changed_data_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "already finished" in again.stderr
    RunFolder(tmp_path / "other").create(settings)
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text().replace("cscct_version: 0", "cscct_version: 99"))
    old = cscct("resume", "other")
    assert old.returncode == 2
    assert "was created by cscct 99" in old.stderr
    RunFolder(tmp_path / "fresh").create(settings)  # no checkpoint yet: it starts from the beginning
    assert cscct("resume", "fresh", "--quiet").returncode == 0
    same(tmp_path / "run", tmp_path / "fresh")


def test_ctrl_c_writes_a_checkpoint_and_prints_the_resume_command(cscct: Any, tmp_path: Path) -> None:
    sets = [argument for text in (*SMALL, EVERY_STEP) for argument in ("--set", text)]
    plugin = signal_plugin(tmp_path / "plugin.py", "run", after=3, number=signal.SIGINT)
    stopped = cscct("run", "lucir+cscct", "digits", *sets, "--out", "run", "--plugin", str(plugin))
    assert stopped.returncode == 130
    assert "cscct resume run" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert list((tmp_path / "run" / "checkpoints").glob("*.json"))
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "running"
