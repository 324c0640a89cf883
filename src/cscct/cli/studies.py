"""`cscct compare`, `sweep`, `reproduce` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jsontext import to_json
from ..plugins import load_plugins
from . import options
from .options import command_hooks, flag_layers, override_layers, parse_seeds, warn

if TYPE_CHECKING:
    from ..experiments import Experiment, StudyTable
    from ..studies.execution import ExecutionOptions

Seeds = Annotated[str, typer.Option("--seeds", metavar="N,N", help="Comma-separated seeds.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", min=1, help="Number of simultaneous runs, in separate processes. [default: cores / threads]"
    ),
]
UseRay = Annotated[bool, typer.Option("--ray", help="Use a Ray cluster, or start one (requires cscct[ray]).")]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", help="Address of the Ray cluster; implies --ray. [default: $RAY_ADDRESS]"),
]
Retries = Annotated[int, typer.Option("--retries", min=0, help="How often a run whose process died is started again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the plan. Requires no data.")]


def compare(
    methods: Annotated[
        list[str], typer.Argument(metavar="METHOD...", help="Two or more methods, such as lucir lucir+cscct.")
    ],
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Name of the dataset. [default: digits]")
    ] = None,
    seeds: Seeds = "1,2,3",
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
        int, typer.Option("--jobs", "-j", min=1, help="Number of simultaneous runs, in separate processes.")
    ] = 1,
    log: options.Log = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run several methods with the same seeds and compare them.

    Writes a table with paired differences and a figure. Finished runs in --out are not repeated.
    """
    load_plugins(plugin)
    from ..experiments import comparison
    from ..studies.execution import ExecutionOptions
    from ..yamltext import read_config

    content = read_config(config) if config else {}
    name = dataset or str(content.get("dataset") or "digits")
    overrides = override_layers(
        sets, flag_layers(base, step, device, threads, skip_bad_images, precision=precision, log=log)
    )
    execution = ExecutionOptions(jobs=jobs, in_process=True, plugins=tuple(plugin))
    experiment = comparison(
        methods, name, parse_seeds(seeds), execution, out=out, recipe=recipe, config=content, overrides=overrides
    )
    _run_table(experiment, data_dir, quiet, as_json)


def sweep(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", help="YAML file with the keys dataset, methods, seeds, recipe, set, grid, linear_lr."
        ),
    ],
    out: options.Out = None,
    data_dir: options.DataDir = None,
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = None,
    threads: options.Threads = None,
    precision: options.PrecisionName = None,
    plugin: options.Plugin = [],  # noqa: B006
    jobs: Jobs = None,
    ray: UseRay = False,
    ray_address: RayAddress = None,
    retries: Retries = 2,
    dry_run: DryRun = False,
    log: options.Log = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run every combination of the settings in a study.

    Repeat the command to continue an interrupted sweep. Finished runs are not repeated.
    """
    load_plugins(plugin)
    from ..experiments import parameter_sweep

    execution = _execution(jobs, ray, ray_address, retries, plugin)
    overrides = override_layers(sets, flag_layers(device=device, threads=threads, precision=precision, log=log))
    experiment = parameter_sweep(study, execution, out, overrides)
    if dry_run:
        _print_plan(experiment, data_dir, f"Study {study}", as_json)
    else:
        _run_table(experiment, data_dir, quiet, as_json)


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="table1, table2, table3, s1, s2, apt-act, tsne or phases.")
    ],
    scale: Annotated[str, typer.Option("--scale", help="paper, cpu or cpu-pretrained.")] = "paper",
    recipe: Annotated[
        str, typer.Option("--recipe", help="Hyperparameters of the released code (released) or the paper (printed).")
    ] = "released",
    order: Annotated[
        str | None, typer.Option("--order", help="Class order; podnet selects one of PODNet's three orders by seed.")
    ] = None,
    seeds: Seeds = "1,2,3",
    out: options.Out = None,
    data_dir: options.DataDir = None,
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = None,
    threads: options.Threads = None,
    precision: options.PrecisionName = None,
    jobs: Jobs = None,
    ray: UseRay = False,
    ray_address: RayAddress = None,
    retries: Retries = 2,
    dry_run: DryRun = False,
    log: options.Log = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Reproduce a table or figure of the paper and print it with the published numbers.

    Results with the same scale and recipe share a folder and their runs.
    """
    load_plugins()
    from ..experiments import paper_experiment
    from ..paper.cells import Request, find
    from ..paper.scales import describe_scale

    request = Request(scale, recipe, order, tuple(parse_seeds(seeds)))
    execution = _execution(jobs, ray, ray_address, retries)
    overrides = override_layers(sets, flag_layers(device=device, threads=threads, precision=precision, log=log))
    experiment = paper_experiment(name, request, execution, out, overrides)
    if dry_run:
        title = f"{find(name).title}\nscale {scale} ({describe_scale(scale)}); recipe {recipe}"
        _print_plan(experiment, data_dir, title, as_json)
        return
    with command_hooks(quiet, as_json) as hooks:
        written, status = experiment.run(data_dir, hooks)
    if as_json:
        print(to_json(written.content, indent=1))
    elif not quiet:
        from ..ui.printing import print_published

        print_published(written.result, request, written.cells)
        print(f"Results: {written.folder} ({', '.join(written.files)})")
    status.raise_for_failures()


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Folders of runs, comparisons, sweeps or paper results.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder of the report. [default: RUN_DIR/report; several RUN_DIR: report]"
        ),
    ] = None,
    log_axis: Annotated[
        bool, typer.Option("--log", help="Use a logarithmic accuracy axis in accuracy curves.")
    ] = False,
    pdf: Annotated[
        bool,
        typer.Option("--pdf", help="Also write PDF figures for papers: 3.35 in wide (one column), 8-point text."),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files (requires cscct[tensorboard]).")
    ] = False,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Write an HTML report of stored runs, with figures as PNG, SVG, CSV and (--pdf) PDF files."""
    from ..api_studies import report

    page = report(runs, out, title=title, log_axis=log_axis, pdf=pdf, tensorboard=tensorboard, warn=warn)
    if not quiet:
        print(f"Report: {page}")


def _execution(
    jobs: int | None, ray: bool, ray_address: str | None, retries: int, plugins: list[Path] | None = None
) -> ExecutionOptions:
    from ..studies.execution import ExecutionOptions

    use_ray = ray or ray_address is not None
    return ExecutionOptions(jobs, plugins=tuple(plugins or ()), ray=use_ray, ray_address=ray_address, retries=retries)


def _run_table(experiment: Experiment[StudyTable], data_dir: Path | None, quiet: bool, as_json: bool) -> None:
    with command_hooks(quiet, as_json) as hooks:
        written, status = experiment.run(data_dir, hooks)
    if as_json:
        print(written.table.to_json(), end="")
    elif not quiet:
        from ..ui.printing import print_results

        print_results(written.table, written.title)
        files = ", ".join(written.files)
        print(f"Results: {written.folder} ({files}, and a folder per run). Figures: cscct report {written.folder}")
    status.raise_for_failures()


def _print_plan(experiment: Experiment[Any], data_dir: Path | None, title: str, as_json: bool) -> None:
    summary = experiment.summary(data_dir, warn)
    if as_json:
        from ..studies.plan import as_json as plan_json

        print(to_json(plan_json(summary), indent=1))
    else:
        from ..ui.printing import print_plan

        print_plan(summary, title)
