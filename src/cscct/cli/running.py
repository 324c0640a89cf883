"""`cscct run` and `resume`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from ..plugins import load_plugins
from .options import (
    Base,
    CompileName,
    Config,
    DataDir,
    DatasetName,
    Device,
    Devices,
    Json,
    MethodName,
    Nodes,
    Out,
    Plugin,
    PrecisionName,
    Quiet,
    RecipeName,
    Seed,
    Sets,
    SkipBad,
    StepSize,
    Threads,
    flag_layers,
    is_follower,
    open_display,
    resolve_settings,
)
from .stopping import interruptible, stop_on_request

if TYPE_CHECKING:
    from ..api import Run
    from ..config import Settings
    from ..runs.first_tasks import FirstTaskCache


def run(
    method: MethodName = None,
    dataset: DatasetName = None,
    out: Out = None,
    data_dir: DataDir = None,
    config: Config = None,
    seed: Seed = None,
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
    first_tasks: Annotated[
        Path | None,
        typer.Option(
            "--first-tasks",
            metavar="DIR",
            help="Where runs leave first tasks for others with the same one. [default: nowhere]",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """One experiment: a method learns a dataset, task by task."""
    flags = flag_layers(base, step, device, threads, skip_bad_images, seed, devices, nodes, precision, compile_)
    load_plugins(plugin)
    settings = resolve_settings(method, dataset, recipe, config, sets, flags)
    from ..runs.first_tasks import FirstTaskCache

    shared = FirstTaskCache(first_tasks) if first_tasks else None
    _carry_out(settings, out, data_dir, plugin, quiet, as_json, shared)


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
    from ..api import finished_run
    from ..runs.folder import RunFolder

    folder = RunFolder(run_dir)
    finished = finished_run(folder)
    if finished is not None:
        if not quiet:
            print(f"This run is finished already: {run_dir}", file=sys.stderr)
        _show(finished, quiet, as_json)
        return
    data, plugins = folder.origin()
    try:
        settings = folder.settings()
    except UserError as error:
        if plugins and not plugin:  # they are code: only the user says what is to be run
            words = " ".join(f"--plugin {one}" for one in plugins)
            raise UserError(f"{error} The run was started with {words}; give that again.") from error
        raise
    runtime = replace(
        settings.runtime, devices=devices or settings.runtime.devices, nodes=nodes or settings.runtime.nodes
    )
    settings = settings.model_copy(update={"runtime": runtime})
    _carry_out(settings, run_dir, data_dir or data, plugin, quiet, as_json)


def _carry_out(
    settings: Settings,
    out: Path | None,
    data_dir: Path | None,
    plugins: list[Path],
    quiet: bool,
    as_json: bool,
    first_tasks: FirstTaskCache | None = None,
) -> None:
    from ..api import run_settings

    with open_display(quiet, as_json) as display, stop_on_request(display.say) as stop:
        done = run_settings(
            settings,
            out=out,
            data_dir=data_dir,
            plugins=plugins,
            listener=display,
            warn=display.warn,
            progress=interruptible(stop, display.reading),
            first_tasks=first_tasks,
            stop=stop,
        )
    if not is_follower():
        _show(done, quiet, as_json)


def _show(done: Run, quiet: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(done.result, indent=1))
    elif not quiet:
        from ..ui.tables import print_result

        print_result(done.result, done.path)
