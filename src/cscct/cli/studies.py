"""`cscct sweep`, `reproduce` and `report`: many runs, and what comes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RunFailed
from ..plugins import load_plugins
from .options import (
    DataDir,
    Device,
    Json,
    Out,
    Plugin,
    Quiet,
    Sets,
    Threads,
    child_arguments,
    cores,
    flag_layers,
    mode,
    parse_seeds,
    stop_on_request,
    warn,
)

if TYPE_CHECKING:
    from ..studies.plan import PlannedRun

Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Runs at a time, each in its own process. [default: cores / threads]"),
]
UseRay = Annotated[bool, typer.Option("--ray", help="On a Ray cluster, or an embedded one (needs cscct[ray]).")]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="Of the cluster; implies --ray. [default: $RAY_ADDRESS]")
]
Retries = Annotated[int, typer.Option("--retries", min=0, help="How often a run that dies is taken up again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done. Needs no data.")]


@dataclass(frozen=True)
class ExecutionOptions:
    """Where and how the runs of a plan are carried out."""

    data_dir: Path | None
    plugins: list[Path]
    jobs: int | None
    ray: bool
    ray_address: str | None
    retries: int

    def processes(self, plan: Sequence[PlannedRun]) -> int:
        """As many runs at a time as there are cores for their threads, unless it is said."""
        threads = max((one.settings.runtime.threads or cores() for one in plan), default=1)
        return self.jobs or max(1, cores() // threads)


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
    from ..studies.grid import parse_study, plan_study
    from ..yamltext import parse_override, read_config

    wanted = parse_study(read_config(study), str(study))
    folder = out or Path("runs") / study.stem
    overrides = [*map(parse_override, sets), *flag_layers(device=device, threads=threads)]
    means = ExecutionOptions(data_dir, plugin, jobs, ray or ray_address is not None, ray_address, retries)
    plan = complete_plan(plan_study(wanted, folder, overrides), means)
    if dry_run:
        tell_plan(plan, means, f"The study {study}", as_json)
        return
    failures = carry_out(plan, folder, means, quiet, as_json)
    from ..analysis.tables import flat_csv, rows_json, rows_of
    from ..runs.files import write_text

    rows = rows_of(plan)
    entries = rows_json(rows)
    write_text(folder / "sweep.json", json.dumps(entries, indent=1) + "\n")
    write_text(folder / "sweep.csv", flat_csv(entries))
    if as_json:
        print(json.dumps(entries, indent=1))
    elif not quiet:
        from ..ui.tables import print_sweep

        print_sweep(rows, f"{wanted.dataset}: mean ± standard deviation over seeds, in percent")
        print(f"Results: {folder} (sweep.json, sweep.csv, a folder for each run); pictures: cscct report {folder}")
    _complain(failures, len(plan))


def reproduce(
    name: Annotated[str, typer.Argument(help="table1, table2, table3, s1, s2, apt-act, tsne or phases.")],
    scale: Annotated[str, typer.Option("--scale", help="paper, cpu (2 minutes a run) or cpu-large.")] = "paper",
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
    from ..yamltext import parse_override

    request = Request(scale, recipe, order, tuple(parse_seeds(seeds)))
    exhibit = find(name)
    folder = out or Path("runs") / f"paper-{scale}-{recipe}"
    overrides = [*map(parse_override, sets), *flag_layers(device=device, threads=threads)]
    means = ExecutionOptions(data_dir, [], jobs, ray or ray_address is not None, ray_address, retries)
    cells = plan_exhibit(exhibit, request, folder, overrides)
    plan = complete_plan([planned for _, planned in cells], means)
    cells = [(cell, planned) for (cell, _), planned in zip(cells, plan, strict=True)]
    if dry_run:
        tell_plan(plan, means, f"{exhibit.title}\nscale {scale} ({in_words(scale)}); recipe {recipe}", as_json)
        return
    failures = carry_out(plan, folder, means, quiet, as_json)
    from ..paper.exhibits import write_exhibit

    answer, files = write_exhibit(exhibit, request, cells, folder / name)
    if as_json:
        print(json.dumps(answer, indent=1))
    elif not quiet:
        from ..ui.tables import print_published

        print_published(exhibit, request, cells)
        print(f"Results: {folder / name} ({', '.join(files)})")
    _complain(failures, len(plan))


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


def complete_plan(plan: list[PlannedRun], means: ExecutionOptions) -> list[PlannedRun]:
    """Threads for those that leave it open; B and C; and runs that have begun stay as they began."""
    from ..data.registry import DATASETS
    from ..studies.plan import completed

    share = max(1, cores() // means.jobs) if means.jobs else cores()
    counts: dict[str, int] = {}
    for one in plan:
        known = DATASETS[one.settings.dataset].num_classes
        if known is None and one.settings.dataset not in counts:  # only the files can tell
            from ..studies.scheduler import DatasetCache

            counts[one.settings.dataset] = len(DatasetCache(means.data_dir, warn).of(one.settings).class_names)
        counts.setdefault(one.settings.dataset, known or 0)
    return [completed(one, counts[one.settings.dataset], share) for one in plan]


def tell_plan(plan: list[PlannedRun], means: ExecutionOptions, title: str, as_json: bool) -> None:
    from ..studies.plan import as_json as plan_json
    from ..studies.plan import summarize_plan

    found = summarize_plan(plan, means.processes(plan))
    if as_json:
        print(json.dumps(plan_json(found), indent=1))
        return
    from ..ui.tables import print_plan

    print_plan(found, title)


def carry_out(plan: list[PlannedRun], folder: Path, means: ExecutionOptions, quiet: bool, as_json: bool) -> list[str]:
    """All runs that are not finished; the failures, a sentence each."""
    from ..runs.first_tasks import FirstTaskCache
    from ..studies.processes import ProcessExecutor
    from ..studies.scheduler import DatasetCache, run_study
    from ..ui.runs_table import RunsTable

    first_tasks = FirstTaskCache(folder / "first-tasks")
    with RunsTable(mode(quiet, as_json)) as table, stop_on_request(table.say) as stop:
        open_ = [one for one in plan if one.taken_up()[0] != "finished"]
        if not open_:
            table.say("All runs are finished already.")
            return []
        datasets = DatasetCache(means.data_dir, table.warn)
        jobs = [datasets.job(one.settings, one.folder) for one in {one.name: one for one in open_}.values()]
        place: Any = ProcessExecutor(means.processes(plan), first_tasks, child_arguments(means.data_dir, means.plugins))
        context: Any = nullcontext()
        if means.ray:
            from ..studies.ray import RayExecutor

            context = place = RayExecutor(means.ray_address, first_tasks, means.data_dir, means.plugins, means.jobs)
        with context:
            status = run_study(jobs, place, first_tasks, table.follow(jobs), stop, means.retries)
    return status.failures()


def _complain(failures: list[str], total: int) -> None:
    if failures:
        raise RunFailed(f"{len(failures)} of {total} runs failed. " + " ".join(failures))
