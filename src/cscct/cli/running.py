"""`cscct run` and `resume`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..plugins import load_plugins
from .options import (
    Base,
    CompileName,
    Config,
    DataDir,
    Device,
    Devices,
    Json,
    Nodes,
    Out,
    Plugin,
    PrecisionName,
    Quiet,
    RecipeName,
    Sets,
    SkipBad,
    StepSize,
    Threads,
    flag_layers,
    interruptible,
    is_follower,
    open_display,
    stop_on_request,
    unused_path,
)

if TYPE_CHECKING:
    from ..config import Settings
    from ..runs.first_tasks import FirstTaskCache
    from ..runs.folder import RunFolder


def run(
    method: Annotated[str | None, typer.Argument(help="A base with +csc, +ct or +cscct: lucir+cscct.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="digits, cifar100, imagenet-subset or folder.")] = None,
    out: Out = None,
    data_dir: DataDir = None,
    config: Config = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Decides everything random [1].")] = None,
    sets: Sets = [],  # noqa: B006  (typer copies it)
    base: Base = None,
    step: StepSize = None,
    recipe: RecipeName = None,
    device: Device = None,
    threads: Threads = None,
    devices: Devices = None,
    nodes: Nodes = None,
    precision: PrecisionName = None,
    compile_: CompileName = None,
    plugin: Plugin = [],  # noqa: B006
    skip_bad_images: SkipBad = False,
    first_tasks: Annotated[Path | None, typer.Option("--first-tasks", hidden=True)] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """One experiment: a method learns a dataset, task by task."""
    flags = flag_layers(base, step, device, threads, skip_bad_images, seed, devices, nodes, precision, compile_)
    load_plugins(plugin)
    settings = _settings(method, dataset, recipe, config, sets, flags)
    from ..runs.first_tasks import FirstTaskCache
    from ..runs.folder import RunFolder

    folder = RunFolder(out or unused_path(Path("runs"), f"{settings.method}-{settings.dataset}-seed{settings.seed}"))
    folder.check_usable()  # before the data is read
    _carry_out(settings, folder, data_dir, FirstTaskCache(first_tasks) if first_tasks else None, quiet, as_json)


def resume(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    data_dir: DataDir = None,
    devices: Devices = None,
    nodes: Nodes = None,
    plugin: Plugin = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run after a crash, a kill or Ctrl-C, as if nothing had happened."""
    load_plugins(plugin)
    from ..runs.folder import RunFolder

    folder = RunFolder(run_dir)
    settings = folder.settings()
    runtime = replace(
        settings.runtime, devices=devices or settings.runtime.devices, nodes=nodes or settings.runtime.nodes
    )
    settings = settings.model_copy(update={"runtime": runtime})
    _carry_out(settings, folder, data_dir, None, quiet, as_json, same_runtime=False)


def _carry_out(
    settings: Settings,
    folder: RunFolder,
    data_dir: Path | None,
    shared: FirstTaskCache | None,
    quiet: bool,
    as_json: bool,
    *,
    same_runtime: bool = True,
) -> None:
    from ..runs.runner import execute
    from ..studies.datasets import DatasetCache

    with open_display(quiet, as_json) as display, stop_on_request(display.say) as stop:
        datasets = DatasetCache(data_dir, display.warn, interruptible(stop, display.reading))
        settings = datasets.complete(settings)
        if folder.state(settings, same_runtime=same_runtime) == "finished":
            display.say(f"This run is finished already: {folder.path}")
            result = folder.result()
        else:
            result = execute(settings, datasets.of(settings), folder, display, display.warn, shared, stop)
    if is_follower():
        return
    if as_json:
        print(json.dumps(result, indent=1))
    elif not quiet:
        from ..ui.tables import print_result

        print_result(result, folder.path)


def _settings(
    method: str | None,
    dataset: str | None,
    recipe: str | None,
    config: Path | None,
    sets: list[str],
    flags: list[dict[str, Any]],
) -> Settings:
    from ..config import resolve
    from ..yamltext import parse_override, read_config

    overrides = [*(parse_override(text) for text in sets), *flags]
    return resolve(method, dataset, recipe=recipe, config=read_config(config) if config else None, overrides=overrides)
