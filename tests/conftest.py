"""Shared by all tests: few threads, small runs, and the command line."""

import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from cscct.config import Settings, resolve
from cscct.data import Dataset
from cscct.learn.build import build_learner, build_stream
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.runs.first_tasks import FirstTaskCache
from cscct.runs.folder import RunFolder
from cscct.runs.listeners import Listener
from cscct.runs.runner import execute
from cscct.studies.datasets import load_dataset
from cscct.yamltext import parse_override

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))  # `make test-portable` asks for two once
torch.set_num_threads(THREADS)


def without_synchronisation() -> None:
    """Do not wait for the disk in this process: a run does so fifty times, for 10 ms each on many machines.

    Only a power failure would make a difference. Tests that count or interrupt the calls replace `os.fsync` themselves.
    """
    os.fsync = lambda descriptor: None


without_synchronisation()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that no worker is left with them at the end."""
    items.sort(key=lambda item: "one_cell" not in item.name and "bench_runs" not in item.name)


class Silent(Listener):
    """A listener that records events."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.parts: list[dict[str, float]] = []
        self.skipped_images = 0

    def step(self, task: Any, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        self.parts.append(parts)

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs.append(record)

    def run_started(self, settings: Settings, tasks: Any, images: int) -> None:
        self.images = images

    def skipped(self, images: int) -> None:
        self.skipped_images += images


def settings_for(method: str, dataset: str = "digits", *sets: str, recipe: str | None = None) -> Settings:
    return resolve(method, dataset, recipe=recipe, overrides=[parse_override(text) for text in sets])


@cache
def digits() -> Dataset:
    """The digits, which take a fifth of a second to load. No test may change them."""
    return load_dataset(settings_for("finetune"), None, lambda _: None)


def run_quietly(
    folder: Path, method: str, *sets: str, first_tasks: Path | None = None, listener: Silent | None = None
) -> dict[str, Any]:
    """Execute a run on digits in this process."""
    listener = listener or Silent()
    settings = settings_for(method, "digits", f"runtime.threads={THREADS}", *sets)
    dataset = load_dataset(settings, None, listener.warnings.append)
    shared = FirstTaskCache(first_tasks) if first_tasks else None
    warn = listener.warnings.append
    return execute(complete(settings, dataset), dataset, RunFolder(folder), listener, warn, shared)


def learner_for(method: str, *sets: str, dataset: str = "digits") -> Learner:
    settings = settings_for(method, dataset, f"runtime.threads={THREADS}", *sets)
    loaded = digits() if dataset == "digits" else load_dataset(settings, None, lambda _: None)
    settings = complete(settings, loaded)
    return build_learner(settings, loaded, build_stream(settings, loaded, lambda _: None))


def without_timings(result: Any) -> Any:
    """The values that are reproducible."""
    if isinstance(result, dict):
        return {k: without_timings(v) for k, v in result.items() if k not in ("seconds", "environment")}
    return [without_timings(v) for v in result] if isinstance(result, list) else result


Prepare = Callable[[], None]
HEAVY = (
    "torch._dynamo",
    "sklearn.datasets",
    "sklearn.cluster",
    "matplotlib.pyplot",
    "safetensors.torch",
    "rich.progress",
)


def _child(function: Callable[[], None], folder: Path, env: dict[str, str], output: Path) -> None:
    """Call a function in a folder, in a new process, with its output in files."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT), number)
    without_synchronisation()
    function()


def run_forked(function: Callable[[], None], folder: Path, **env: str) -> tuple[int, str, str]:
    """Call a function in a fork of a process that has imported torch and cscct.

    Returns:
        Its exit code and what it printed to stdout and stderr.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*HEAVY, *(name for name in sys.modules if name.partition(".")[0] == "cscct")])
    home = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "COLUMNS": "200", **env}
    with TemporaryDirectory() as output:
        process = context.Process(target=_child, args=(function, folder, home, Path(output)))
        process.start()
        process.join(timeout=300)
        if process.exitcode is None:
            process.kill()
            raise AssertionError(f"{function} does not end")
        out, err = ((Path(output) / name).read_text() for name in ("stdout", "stderr"))
    return process.exitcode, out, err


def _command(arguments: Sequence[str], prepare: Prepare) -> None:
    sys.argv = ["cscct", *arguments]
    prepare()
    from cscct.cli import main

    main()


def _nothing() -> None: ...


def run_command(
    folder: Path, *arguments: str, prepare: Prepare = _nothing, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a fork of a process that has imported torch and cscct.

    `python -m cscct` and the installed program have separate tests. `prepare` is called in the process first.
    """
    return subprocess.CompletedProcess(arguments, *run_forked(partial(_command, arguments, prepare), folder, **env))


@pytest.fixture
def cscct(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command, in an empty folder."""

    def call(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run_command(tmp_path, *arguments, **env)

    return call


def signal_at_call(name: str, number: int, sent: int) -> None:
    """Make a process send itself a signal when a function (`os.fsync`) is called for the n-th time."""
    place, _, attribute = name.rpartition(".")
    owner = pkgutil.resolve_name(place)
    real, calls = getattr(owner, attribute), count(1)

    def call(*arguments: Any, **named: Any) -> Any:
        if next(calls) == number:
            os.kill(os.getpid(), sent)
        return real(*arguments, **named)

    setattr(owner, attribute, call)


SIGNALS = """
import os, threading
from pathlib import Path
from cscct.runs.checkpoints import Checkpoints

mark, real, saves = Path(__file__).with_suffix(".mark"), Checkpoints.save, 0

def send():
    try:
        mark.open("x").close()  # once, by whoever comes first
    except FileExistsError:
        return
    os.kill(os.getpid(), {number})

def save(self, *arguments):
    global saves
    if self.folder.parent.name not in {runs}:
        return real(self, *arguments)
    saves += 1
    if saves == {after} + 3 and {wait} and not mark.exists():
        threading.Event().wait()
    real(self, *arguments)
    if saves == {after}:
        begin()

def begin():
    threading.Timer({wait}, send).start() if {wait} else send()

Checkpoints.save = save
if not {after}:
    begin()
"""


def signal_plugin(file: Path, *runs: str, after: int = 1, wait: float = 0.0, number: int = signal.SIGKILL) -> Path:
    """Write a plugin that sends a signal to its process once, after a number of checkpoints.

    runs: Names of the run folders that it applies to. after: 0 means at the start. wait: Delay in seconds; the signal
    then arrives during the next two steps.
    """
    file.write_text(SIGNALS.format(number=int(number), runs=runs, after=after, wait=wait))
    return file
