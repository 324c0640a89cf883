"""`cscct tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UserError
from ..jsontext import to_json
from ..plugins import load_plugins
from . import options
from .options import command_hooks, flag_layers, override_layers, parse_seeds
from .studies import RayAddress, Retries, UseRay

Over = Annotated[
    list[str],
    typer.Option(
        "--over",
        metavar="KEY=RANGE",
        help="Setting to tune: KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=VALUE,VALUE; repeatable.",
    ),
]


def tune(
    method: options.MethodName = None,
    dataset: options.DatasetName = None,
    over: Over = [],  # noqa: B006
    trials: Annotated[
        int, typer.Option("--trials", "-n", min=1, help="Trials in total, with those that --out already contains.")
    ] = 20,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N,N", help="Seeds of each trial; report results with other seeds.")
    ] = "101",
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Metric on validation images: average_incremental_accuracy, last_accuracy, harmonic_mean, apt or act.",
        ),
    ] = "average_incremental_accuracy",
    prune: Annotated[
        bool,
        typer.Option("--prune/--no-prune", help="Stop trials below the median, from half of their tasks on."),
    ] = True,
    out: options.Out = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    sets: options.Sets = [],  # noqa: B006
    base: options.Base = None,
    step: options.StepSize = None,
    recipe: options.RecipeName = None,
    device: options.Device = None,
    threads: options.Threads = None,
    precision: options.PrecisionName = None,
    plugin: options.Plugin = [],  # noqa: B006
    skip_bad_images: options.SkipBad = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Number of simultaneous trials, in separate processes.")
    ] = 1,
    ray: UseRay = False,
    ray_address: RayAddress = None,
    retries: Retries = 2,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Tune settings of a method with Optuna, on validation images only (requires cscct[tune]).

    Set data.validation to hold out images. Repeat the command with the same --out to continue after a kill, to add
    trials, or to work on the study from several terminals or machines.
    """
    load_plugins(plugin)
    from ..experiments import RUNS
    from ..storage import unused_path
    from ..studies.execution import ExecutionOptions
    from ..studies.space import parse_option
    from ..studies.tuning import BEST, Tuning
    from ..tuning import tune_settings
    from ..yamltext import read_config

    content = read_config(config) if config else {}
    names = [name or content.get(key) for key, name in (("method", method), ("dataset", dataset))]
    if not all(isinstance(name, str) for name in names):
        raise UserError("A method and a dataset are needed: `cscct tune METHOD DATASET`, or in the config file.")
    pairs = [parse_option(text) for text in over]
    repeated = [key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place])]
    if repeated:
        raise UserError(f"--over {repeated[0]} is given twice: use one range.")
    overrides = override_layers(sets, flag_layers(base, step, device, threads, skip_bad_images, precision=precision))
    folder = out or unused_path(RUNS, f"tune-{names[0]}-{names[1]}")
    tuning = Tuning(
        str(names[0]), str(names[1]), folder, dict(pairs), tuple(parse_seeds(seeds)), metric, recipe, content, overrides
    )
    use_ray = ray or ray_address is not None
    execution = ExecutionOptions(jobs, not use_ray, tuple(plugin), use_ray, ray_address, retries)
    with command_hooks(quiet, as_json) as hooks:
        result, files = tune_settings(tuning, trials, execution, data_dir, hooks, prune=prune)
    if as_json:
        print(to_json(result.as_dict(), indent=1))
    elif not quiet:
        from ..ui.tuning import print_tuning

        print_tuning(result)
        print(f"Results: {folder} ({', '.join(files)}, and a folder per run).")
        print(f"Train with the best settings: cscct run --config {folder / BEST}")
