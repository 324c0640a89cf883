"""Flags that several commands share, and what they mean."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Interrupted, UserError

if TYPE_CHECKING:
    from ..data.registry import Progress
    from ..ui.progress import Display, Mode

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The dataset's folder or its parent [$CSCCT_DATA].")]
Out = Annotated[Path | None, typer.Option("--out", help="The folder for the results.")]
Config = Annotated[Path | None, typer.Option("--config", help="Settings from a YAML file.")]
Sets = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable.")]
Base = Annotated[int | None, typer.Option("-B", "--base", help="Classes of the first task.")]
StepSize = Annotated[int | None, typer.Option("-C", "--step", help="Classes of every later task.")]
RecipeName = Annotated[str | None, typer.Option("--recipe", help="released (default) or printed.")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads of a run.")]
Devices = Annotated[int | None, typer.Option("--devices", min=1, help="Processes that share each batch [1].")]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, help="Machines with so many processes each [1].")]
PrecisionName = Annotated[str | None, typer.Option("--precision", help="32-true (default) or bf16-mixed.")]
CompileName = Annotated[
    str | None, typer.Option("--compile", help="none (default), frozen (networks that do not train) or all.")
]
Plugin = Annotated[list[Path], typer.Option("--plugin", help="A Python file with methods, losses or datasets.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad-images", help="Leave out files that cannot be read as images.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and warnings.")]
Json = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]


def warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def flag_layers(
    base: int | None = None,
    step: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    skip_bad: bool = False,
    seed: int | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    precision: str | None = None,
    compile_: str | None = None,
) -> list[dict[str, Any]]:
    """The short flags as settings, so that one check serves for both."""
    named = (
        ("protocol", "base", base),
        ("protocol", "step", step),
        ("runtime", "device", device),
        ("runtime", "threads", threads),
        ("runtime", "devices", devices),
        ("runtime", "nodes", nodes),
        ("numerics", "precision", precision),
        ("numerics", "compile", compile_),
    )
    layers: list[dict[str, Any]] = [{section: {key: value}} for section, key, value in named if value is not None]
    if skip_bad:
        layers.append({"data": {"skip_bad_images": True}})
    return [*layers, {"seed": seed}] if seed is not None else layers


def parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds takes whole numbers with commas between, for example 1,2,3, not {text!r}.") from None
    if len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds names a seed twice: {text}.")
    return seeds


def mode(quiet: bool, as_json: bool) -> Mode:
    """How to show progress."""
    return "quiet" if quiet or as_json or is_follower() else "live" if sys.stderr.isatty() else "plain"


def is_follower() -> bool:
    """Whether this process was started to compute along with another, which does the talking."""
    rank = os.environ.get("RANK") or max(os.environ.get("LOCAL_RANK", "0"), os.environ.get("NODE_RANK", "0"))
    return rank != "0"


def open_display(quiet: bool, as_json: bool, runs: int = 1) -> Display:
    from ..ui.progress import Display

    return Display(mode(quiet, as_json), runs)


@contextmanager
def stop_on_request(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Ctrl-C or a polite kill asks for a stop at the next step; a second Ctrl-C does not wait for it."""
    asked: list[int] = []

    def hear(number: int, _: object) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked:
            say("Stopping after this step, with a checkpoint (Ctrl-C again: at once, without) ...")
        asked.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible(stop: Callable[[], bool], progress: Progress) -> Progress:
    """Progress of reading data, which is broken off when a stop is asked for."""

    def go_on(what: str, done: int, total: int) -> None:
        if stop():
            raise Interrupted(f"Stopped while {what}, before any training. Give the same command again.")
        progress(what, done, total)

    return go_on


def unused_path(parent: Path, name: str) -> Path:
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate
