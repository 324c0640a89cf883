"""`cscct compare`, `sweep`, `reproduce` and `report`: many runs, and what comes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..plugins import load_plugins
from .options import (
    Base,
    Config,
    DataDir,
    Device,
    Json,
    Out,
    Plugin,
    Quiet,
    RecipeName,
    Sets,
    SkipBad,
    StepSize,
    Threads,
    flag_layers,
    mode,
    open_display,
    parse_seeds,
    warn,
)
from .stopping import interruptible, stop_on_request

if TYPE_CHECKING:
    from ..analysis.tables import ResultsTable
    from ..studies.execution import ExecutionOptions
    from ..studies.plan import PlannedRun
    from ..studies.scheduler import StudyStatus

Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Runs at a time, each in its own process. [default: cores / threads]"),
]
UseRay = Annotated[bool, typer.Option("--ray", help="On a Ray cluster, or an embedded one (needs cscct[ray]).")]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="Of the cluster; implies --ray. [default: $RAY_ADDRESS]")
]
Retries = Annotated[int, typer.Option("--retries", min=0, help="How often a run that dies is started again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done. Needs no data.")]


def compare(
    methods: Annotated[list[str], typer.Argument(help="Two or more methods; differences are paired by seed.")],
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="What to learn. [default: digits]")] = None,
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
    load_plugins(plugin)
    from ..runs.files import unused_path
    from ..studies.execution import ExecutionOptions
    from ..studies.grid import plan_comparison
    from ..yamltext import parse_override, read_config

    file = read_config(config) if config else {}
    named = dataset or str(file.get("dataset") or "digits")
    folder = out or unused_path(Path("runs"), f"compare-{named}")
    overrides = [*map(parse_override, sets), *flag_layers(base, step, device, threads, skip_bad_images)]
    plan = plan_comparison(methods, named, parse_seeds(seeds), folder, recipe=recipe, config=file, overrides=overrides)
    options = ExecutionOptions(jobs=jobs, in_process=True, plugins=tuple(plugin))
    plan, status = _carry_out(plan, options, data_dir, quiet, as_json)
    from ..report.comparison import write_comparison

    table, title, files = write_comparison(plan, folder)
    _print_results(table, f"{title}: mean ± standard deviation, in percent", folder, files, quiet, as_json)
    status.raise_for_failures()


def sweep(
    study: Annotated[Path, typer.Argument(help="A YAML file: dataset, methods, seeds, set, grid, linear_lr.")],
    out: Out = None,
    data_dir: DataDir = None,
    sets: Sets = [],  # noqa: B006
    device: Device = None,
    threads: Threads = None,
    plugin: Plugin = [],  # noqa: B006
    jobs: Jobs = None,
    ray: UseRay = False,
    ray_address: RayAddress = None,
    retries: Retries = 2,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Many runs: every combination of the settings in a study, planned first, each run once.

    The same command goes on where it was stopped.
    """
    load_plugins(plugin)
    from ..studies.execution import ExecutionOptions
    from ..studies.grid import parse_study, plan_study
    from ..yamltext import parse_override, read_config

    wanted = parse_study(read_config(study), str(study))
    folder = out or Path("runs") / study.stem
    overrides = [*map(parse_override, sets), *flag_layers(device=device, threads=threads)]
    on_ray = ray or ray_address is not None
    options = ExecutionOptions(jobs, plugins=tuple(plugin), ray=on_ray, ray_address=ray_address, retries=retries)
    plan = plan_study(wanted, folder, overrides)
    if dry_run:
        _print_plan(plan, options, data_dir, f"The study {study}", as_json)
        return
    plan, status = _carry_out(plan, options, data_dir, quiet, as_json)
    from ..analysis.groups import group_plan
    from ..analysis.tables import results_table

    table = results_table(list(group_plan(plan).values()))
    files = table.write(folder, "sweep")
    title = f"{wanted.dataset}: mean ± standard deviation over seeds, in percent"
    _print_results(table, title, folder, files, quiet, as_json)
    status.raise_for_failures()


def reproduce(
    name: Annotated[str, typer.Argument(help="table1, table2, table3, s1, s2, apt-act, tsne or phases.")],
    scale: Annotated[str, typer.Option("--scale", help="paper, cpu, cpu-large, cpu-deep or cpu-pretrained.")] = "paper",
    recipe: Annotated[str, typer.Option("--recipe", help="released or printed.")] = "released",
    order: Annotated[str | None, typer.Option("--order", help="Class order; podnet: its three, by seed.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds with commas between: 1,2,3.")] = "1,2,3",
    out: Out = None,
    data_dir: DataDir = None,
    sets: Sets = [],  # noqa: B006
    device: Device = None,
    threads: Threads = None,
    jobs: Jobs = None,
    ray: UseRay = False,
    ray_address: RayAddress = None,
    retries: Retries = 2,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """A table or figure of the paper: ours beside the published numbers.

    Results of one scale and recipe share a folder, and runs that several of them show are made once.
    """
    from ..paper.cells import Request, find, plan_exhibit
    from ..paper.scales import in_words
    from ..studies.execution import ExecutionOptions
    from ..yamltext import parse_override

    request = Request(scale, recipe, order, tuple(parse_seeds(seeds)))
    exhibit = find(name)
    folder = out or Path("runs") / f"paper-{scale}-{recipe}"
    overrides = [*map(parse_override, sets), *flag_layers(device=device, threads=threads)]
    on_ray = ray or ray_address is not None
    options = ExecutionOptions(jobs, ray=on_ray, ray_address=ray_address, retries=retries)
    cells = plan_exhibit(exhibit, request, folder, overrides)
    plan = [planned for _, planned in cells]
    if dry_run:
        title = f"{exhibit.title}\nscale {scale} ({in_words(scale)}); recipe {recipe}"
        _print_plan(plan, options, data_dir, title, as_json)
        return
    plan, status = _carry_out(plan, options, data_dir, quiet, as_json)
    from ..paper.exhibits import write_exhibit

    cells = [(cell, planned) for (cell, _), planned in zip(cells, plan, strict=True)]

    answer, files = write_exhibit(exhibit, request, cells, folder / name)
    if as_json:
        print(json.dumps(answer, indent=1))
    elif not quiet:
        from ..ui.tables import print_published

        print_published(exhibit, request, cells)
        print(f"Results: {folder / name} ({', '.join(files)})")
    status.raise_for_failures()


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of comparisons, sweeps and tables.")],
    out: Out = None,
    log_axis: Annotated[bool, typer.Option("--log", help="Accuracy curves with a logarithmic accuracy axis.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Event files too (cscct[tensorboard]).")] = False,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page.")] = None,
    quiet: Quiet = False,
) -> None:
    """One HTML page with every figure, from what the runs have stored; PNG, SVG and CSV beside it."""
    from ..report import find_runs, write_report

    folders = find_runs(runs)
    folder = out or (runs[0] / "report" if len(runs) == 1 else Path("report"))
    page = write_report(folders, folder, log_axis=log_axis, tensorboard=tensorboard, title=title, warn=warn)
    if not quiet:
        print(f"Report: {page}")


def _carry_out(
    plan: list[PlannedRun], options: ExecutionOptions, data_dir: Path | None, quiet: bool, as_json: bool
) -> tuple[list[PlannedRun], StudyStatus]:
    """The plan with nothing left open, and what became of its runs, which are shown while they work."""
    from ..studies.datasets import DatasetCache
    from ..studies.execution import carry_out
    from ..studies.plan import complete_plan
    from ..ui.runs_table import RunsTable

    if options.in_this_process(plan):
        with open_display(quiet, as_json, len(plan)) as display, stop_on_request(display.say) as stop:
            datasets = DatasetCache(data_dir, display.warn, interruptible(stop, display.reading))
            plan = complete_plan(plan, datasets, options.threads)
            return plan, carry_out(plan, options, datasets, listener=display, watch=display.watch, stop=stop)
    with RunsTable(mode(quiet, as_json)) as table, stop_on_request(table.say) as stop:
        datasets = DatasetCache(data_dir, table.warn)
        plan = complete_plan(plan, datasets, options.threads)
        status = carry_out(plan, options, datasets, watch=table.follow(plan), stop=stop)
        if not status.attempts and not status.failures():
            table.say("All runs are finished already.")
        return plan, status


def _print_plan(
    plan: list[PlannedRun], options: ExecutionOptions, data_dir: Path | None, title: str, as_json: bool
) -> None:
    from ..studies.datasets import DatasetCache
    from ..studies.plan import as_json as plan_json
    from ..studies.plan import complete_plan, summarize_plan

    plan = complete_plan(plan, DatasetCache(data_dir, warn), options.threads)
    found = summarize_plan(plan, options.processes(plan))
    if as_json:
        print(json.dumps(plan_json(found), indent=1))
        return
    from ..ui.tables import print_plan

    print_plan(found, title)


def _print_results(table: ResultsTable, title: str, folder: Path, files: list[str], quiet: bool, as_json: bool) -> None:
    if as_json:
        print(table.to_json(), end="")
    elif not quiet:
        from ..ui.tables import print_results

        print_results(table, title)
        print(f"Results: {folder} ({', '.join(files)}, a folder for each run); pictures: cscct report {folder}")
