"""`cscct run` and `cscct resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..jsontext import to_json
from ..plugins import load_plugins
from ..streams import is_follower
from . import options
from .options import command_hooks


def run(
    method: options.MethodName = None,
    dataset: options.DatasetName = None,
    out: options.Out = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    seed: options.Seed = None,
    sets: options.Sets = [],  # noqa: B006  (typer copies it)
    base: options.Base = None,
    step: options.StepSize = None,
    recipe: options.RecipeName = None,
    device: options.Device = None,
    threads: options.Threads = None,
    devices: options.Devices = None,
    nodes: options.Nodes = None,
    precision: options.PrecisionName = None,
    compile_: options.CompileName = None,
    plugin: options.Plugin = [],  # noqa: B006
    skip_bad_images: options.SkipBad = False,
    first_tasks: Annotated[
        Path | None,
        typer.Option(
            "--first-task-cache",
            "--first-tasks",
            metavar="DIR",
            help="Folder in which runs with the same first task share its weights. [default: none]",
        ),
    ] = None,
    log: options.Log = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run one experiment: train a method on a dataset, task by task.

    If --out contains an unfinished run with the same settings, it is continued.
    """
    flags = options.flag_layers(
        base, step, device, threads, skip_bad_images, seed, devices, nodes, precision, compile_, log
    )
    load_plugins(plugin)
    settings = options.resolve_settings(method, dataset, recipe, config, sets, flags)
    from ..experiments import run_settings
    from ..runs.first_tasks import FirstTaskCache

    cache = FirstTaskCache(first_tasks) if first_tasks else None
    with command_hooks(quiet, as_json) as hooks:
        path, result = run_settings(
            settings, out=out, data_dir=data_dir, plugins=plugin, first_tasks=cache, hooks=hooks
        )
    _print(path, result, quiet, as_json)


def resume(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of an interrupted run.")],
    data_dir: options.DataDir = None,
    devices: options.Devices = None,
    nodes: options.Nodes = None,
    plugin: options.Plugin = [],  # noqa: B006
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Continue a run after a crash, a kill or Ctrl-C.

    The result is identical to that of an uninterrupted run.
    """
    from ..api import resume

    with command_hooks(quiet, as_json) as hooks:
        finished = resume(run_dir, data_dir=data_dir, devices=devices, nodes=nodes, plugins=plugin, hooks=hooks)
    _print(finished.path, finished.result, quiet, as_json)


def _print(path: Path, result: dict[str, Any], quiet: bool, as_json: bool) -> None:
    if is_follower():
        return
    if as_json:
        print(to_json(result, indent=1))
    elif not quiet:
        from ..ui.printing import print_result

        print_result(result, path)
