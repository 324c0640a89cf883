"""`cscct run`, `resume` and `compare`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    child_arguments,
    cores,
    flag_layers,
    interruptible,
    is_follower,
    mode,
    open_display,
    parse_seeds,
    resolve_settings,
    stop_on_request,
    unused_path,
)

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
    first_tasks: Annotated[Path | None, typer.Option("--first-tasks", hidden=True)] = None,
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


def compare(
    methods: Annotated[list[str], typer.Argument(help="Two or more methods; differences are paired by seed.")],
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="What to learn.")] = "digits",
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds with commas between: 1,2,3.")] = "1,2,3",
    out: Out = None,
    data_dir: DataDir = None,
    config: Config = None,
    sets: Sets = [],  # noqa: B006
    base: Base = None,
    step: StepSize = None,
    recipe: RecipeName = None,
    device: Device = None,
    threads: Threads = None,
    plugin: Plugin = [],  # noqa: B006
    skip_bad_images: SkipBad = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time, each in its own process.")] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Several methods on the same seeds: a table with paired differences, and a picture.

    Runs in --out that are finished already are not repeated.
    """
    chosen = parse_seeds(seeds)
    if jobs > 1 and threads is None:
        threads = max(1, cores() // jobs)
    flags = flag_layers(base, step, device, threads, skip_bad_images, None)
    load_plugins(plugin)
    from ..config import resolve, tuned_for
    from ..yamltext import parse_override, read_config

    methods = list(dict.fromkeys(methods))
    layers = tuned_for([read_config(config) if config else {}, *map(parse_override, sets), *flags], methods)
    wanted = [
        resolve(method, dataset, recipe=recipe, overrides=[*own, {"seed": seed}])
        for method, own in zip(methods, layers, strict=True)
        for seed in chosen
    ]
    from ..runs.first_tasks import FirstTaskCache
    from ..runs.folder import RunFolder
    from ..studies.processes import ProcessExecutor
    from ..studies.scheduler import DatasetCache, Job, raise_failures, run_in_process, run_study
    from ..ui.runs_table import RunsTable

    folder = out or unused_path(Path("runs"), f"compare-{dataset}")
    shared = FirstTaskCache(folder / "first-tasks")

    def jobs_of(datasets: DatasetCache) -> list[Job]:
        plan = [datasets.job(one, RunFolder(folder / f"{one.method}-seed{one.seed}")) for one in wanted]
        for job in plan:
            job.folder.state(job.settings)  # a folder with another run is refused before any work
        return plan

    if jobs == 1 and all(one.runtime.devices * one.runtime.nodes == 1 for one in wanted):
        with open_display(quiet, as_json, len(wanted)) as display, stop_on_request(display.say) as stop:
            datasets = DatasetCache(data_dir, display.warn, interruptible(stop, display.reading))
            plan = jobs_of(datasets)
            results = run_in_process(plan, datasets, shared, display, stop)
    else:
        with RunsTable(mode(quiet, as_json)) as table, stop_on_request(table.say) as stop:
            plan = jobs_of(DatasetCache(data_dir, table.warn))
            place = ProcessExecutor(jobs, shared, child_arguments(data_dir, plugin))
            status = run_study(plan, place, shared, table.follow(plan), stop)
        raise_failures(status.failures(), len(plan))
        results = [job.folder.result() for job in plan]
    by_method: dict[str, list[Any]] = {}
    for job, result in zip(plan, results, strict=True):
        by_method.setdefault(job.settings.method, []).append(result)
    _report_comparison(by_method, chosen, plan[0].settings, folder, quiet, as_json)


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


def _report_comparison(
    results: dict[str, list[Any]],
    seeds: list[int],
    settings: Settings,
    folder: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    from ..analysis import statistics as maths
    from ..report.curves import accuracy_curves
    from ..runs.files import write_text

    rows = maths.compare(results)
    answer = maths.as_json(rows, seeds, settings.dataset)
    write_text(folder / "compare.json", json.dumps(answer, indent=1) + "\n")
    write_text(folder / "compare.csv", maths.as_csv(rows))
    protocol = f"B={settings.protocol.base}, C={settings.protocol.step}"
    count = f"{len(seeds)} seed" + ("s" if len(seeds) > 1 else "")
    accuracy_curves(results, f"{settings.dataset}, {protocol}, {count}", folder / "curves.png")
    if as_json:
        print(json.dumps(answer, indent=1))
    elif not quiet:
        from ..ui.tables import print_comparison

        print_comparison(rows, f"{settings.dataset}, {protocol}, {count}: mean ± standard deviation, in percent")
        print(f"Results: {folder} (compare.json, compare.csv, curves.png, a folder for each run)")
