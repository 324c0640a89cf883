"""Implementation of runs and studies, shared by the Python API and the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .config import Settings, dotted_layers
from .data.registry import Progress
from .errors import Interrupted, UserError, Warn
from .progress import Display, Mode
from .runs.first_tasks import FirstTaskCache
from .runs.folder import RunFolder
from .runs.listeners import Listeners
from .storage import unused_path
from .studies.datasets import DatasetCache, load_dataset
from .studies.execution import ExecutionOptions, execute_plan
from .studies.grid import parse_study, plan_comparison, plan_study
from .studies.plan import PlannedRun, PlanSummary, complete_plan, summarize_plan
from .yamltext import Raw, read_config

if TYPE_CHECKING:
    from .analysis.tables import ResultsTable
    from .data import Dataset
    from .paper.cells import Cell, PaperResult, Request
    from .studies.scheduler import StudyStatus

RUNS = Path("runs")
Plan = Sequence[PlannedRun]
Written = TypeVar("Written")


@dataclass(frozen=True)
class Hooks:
    """How the caller displays progress, receives warnings and stops the work.

    Attributes:
        mode: Display mode; see `cscct.progress.display_mode`.
        listeners: Listeners of the runs in this process.
        warn: Called with each warning.
        stop: Polled after every step. When it returns True, a checkpoint is written and `Interrupted` is raised.
    """

    mode: Mode = "quiet"
    listeners: Sequence[object] = ()
    warn: Warn = warnings.warn
    stop: Callable[[], bool] = lambda: False

    def interruptible(self, progress: Progress) -> Progress:
        """Return a progress callback that raises `Interrupted` when a stop is requested."""

        def report(what: str, done: int, total: int) -> None:
            if self.stop():
                raise Interrupted(f"Stopped while {what}, before training. Repeat the command to start again.")
            progress(what, done, total)

        return report


def layers(settings: Mapping[str, Any] | None) -> list[Raw]:
    """Return settings with dotted names, such as `{"train.epochs": 5}`, as nested layers."""
    if settings and "seed" in settings:
        raise UserError("The seed is not one of the settings: use the argument seed, or seeds for several runs.")
    return dotted_layers(settings or {})


def _folder_part(dataset: str) -> str:
    """Return the name of a dataset for the name of a folder: `hf:user/name` without colon and slash."""
    return re.sub(r"[^\w.+-]+", "-", dataset)


def dataset_name(dataset: str | Dataset) -> str:
    """Return the name of a dataset in the settings. All datasets in memory have the same name."""
    from .data import Dataset
    from .data.datasets.arrays import NAME

    if not isinstance(dataset, str | Dataset):
        raise UserError("dataset must be a name or a cscct.Dataset, for example one made by Dataset.from_arrays.")
    return dataset if isinstance(dataset, str) else NAME


def optional_path(path: str | Path | None) -> Path | None:
    """Return a path, or None for None."""
    return None if path is None else Path(path)


def run_settings(
    settings: Settings,
    dataset: Dataset | None = None,
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    plugins: Sequence[Path] = (),
    first_tasks: FirstTaskCache | None = None,
    hooks: Hooks = Hooks(),  # noqa: B008  (immutable)
) -> tuple[Path, dict[str, Any]]:
    """Execute or continue the run with these settings. The result of a finished run is only read.

    Args:
        settings: Resolved settings.
        dataset: Dataset in memory; by default the dataset is loaded as the settings specify.
        out: Folder of the run; by default a new folder in `runs/`.
        data_dir: Folder of the dataset or its parent.
        plugins: Plugin files, recorded for `cscct resume`.
        first_tasks: First tasks trained by other runs.
        hooks: Display, warnings and stopping.

    Returns:
        Folder of the run and content of its `result.json`.
    """
    from .runs.runner import execute

    name = f"{settings.method}-{_folder_part(settings.dataset)}-seed{settings.seed}"
    folder = RunFolder(out if out is not None else unused_path(RUNS, name))
    folder.check_usable()  # before the data is read
    with Display(hooks.mode) as display:
        listener = Listeners([display, *hooks.listeners])
        if dataset is None:
            dataset = load_dataset(settings, data_dir, hooks.warn, hooks.interruptible(display.reading))
        origin = (data_dir, plugins)
        result = execute(settings, dataset, folder, listener, hooks.warn, first_tasks, hooks.stop, origin)
    return folder.path, result


@dataclass(frozen=True)
class Experiment(Generic[Written]):
    """Planned runs, where they are executed, and how their results are written.

    Attributes:
        plan: The runs.
        options: Where and how the runs are executed.
        write: Writes the results of the completed plan.
    """

    plan: Plan
    options: ExecutionOptions
    write: Callable[[Plan], Written]

    @property
    def folder(self) -> Path:
        """Folder of the runs."""
        return self.plan[0].folder.path.parent

    def summary(self, data_dir: Path | None, warn: Warn) -> PlanSummary:
        """Return what would be executed."""
        plan = complete_plan(self.plan, DatasetCache(data_dir, warn), self.options.threads)
        return summarize_plan(plan, self.options.processes(plan))

    def run(
        self, data_dir: Path | None, hooks: Hooks, datasets: Mapping[str, Dataset] | None = None
    ) -> tuple[Written, StudyStatus]:
        """Execute the runs that are not finished and write the results.

        Args:
            data_dir: Folder of the datasets.
            hooks: Display, warnings and stopping.
            datasets: Datasets in memory by name.

        Returns:
            What `write` returns, and the status of all runs. Failed runs raise no exception.
        """
        from .ui.runs_table import RunSeries, RunsTable

        in_process = self.options.in_this_process(self.plan)
        with RunSeries(hooks.mode) if in_process else RunsTable(hooks.mode) as display:
            listener = Listeners([display, *hooks.listeners] if in_process else hooks.listeners)
            cache = DatasetCache(data_dir, hooks.warn, hooks.interruptible(display.reading), datasets)
            plan = complete_plan(self.plan, cache, self.options.threads)
            watch = display.follow(plan)
            status = execute_plan(plan, self.options, cache, listener=listener, watch=watch, stop=hooks.stop)
            if not status.attempts and not status.failures():
                display.say("All runs are already finished.")
        return self.write([run.as_begun() for run in plan]), status  # with the settings that the runs recorded


class StudyTable(NamedTuple):
    """Results of a comparison or a sweep, and where they were written."""

    table: ResultsTable
    title: str
    folder: Path
    files: list[str]


def comparison(
    methods: Sequence[str],
    dataset: str,
    seeds: Sequence[int],
    options: ExecutionOptions,
    *,
    out: Path | None = None,
    recipe: str | None = None,
    config: Raw | None = None,
    overrides: Sequence[Raw] = (),
) -> Experiment[StudyTable]:
    """Plan several methods with the same seeds."""
    folder = out if out is not None else unused_path(RUNS, f"compare-{_folder_part(dataset)}")
    plan = plan_comparison(methods, dataset, seeds, folder, recipe=recipe, config=config, overrides=overrides)
    return Experiment(plan, options, _write_comparison)


def _write_comparison(plan: Plan) -> StudyTable:
    from .reporting import write_comparison

    folder = plan[0].folder.path.parent
    table, title, files = write_comparison(plan, folder)
    return StudyTable(table, f"{title}: mean ± standard deviation, in percent", folder, files)


def parameter_sweep(
    study: Path | Mapping[str, Any], options: ExecutionOptions, out: Path | None = None, overrides: Sequence[Raw] = ()
) -> Experiment[StudyTable]:
    """Plan the combinations of a study, given as a YAML file or as its content."""
    if isinstance(study, Mapping):
        parsed = parse_study(dict(study), "The study")
        folder = out if out is not None else unused_path(RUNS, f"sweep-{_folder_part(parsed.dataset)}")
    else:
        parsed = parse_study(read_config(study), str(study))
        folder = out if out is not None else RUNS / study.stem
    return Experiment(plan_study(parsed, folder, overrides), options, _write_sweep)


def _write_sweep(plan: Plan) -> StudyTable:
    from .analysis.groups import group_plan
    from .analysis.tables import results_table

    folder = plan[0].folder.path.parent
    table = results_table(list(group_plan(plan).values()))
    title = f"{plan[0].settings.dataset}: mean ± standard deviation over seeds, in percent"
    return StudyTable(table, title, folder, table.write(folder, "sweep"))


class PaperTable(NamedTuple):
    """A reproduced result of the paper, and where it was written."""

    result: PaperResult
    request: Request
    cells: list[tuple[Cell, PlannedRun]]
    content: dict[str, Any]  # of `table.json`
    folder: Path
    files: list[str]


def paper_experiment(
    name: str, request: Request, options: ExecutionOptions, out: Path | None = None, overrides: Sequence[Raw] = ()
) -> Experiment[PaperTable]:
    """Plan the runs of a table or figure of the paper."""
    from .paper.cells import find, plan_result

    result = find(name)
    folder = out if out is not None else RUNS / f"paper-{request.scale}-{request.recipe}"
    cells, plan = zip(*plan_result(result, request, folder, overrides), strict=True)
    return Experiment(plan, options, partial(_write_paper_result, result, request, cells, folder / name))


def _write_paper_result(
    result: PaperResult, request: Request, cells: Sequence[Cell], folder: Path, plan: Plan
) -> PaperTable:
    from .paper.results import write_result_files

    pairs = list(zip(cells, plan, strict=True))
    content, files = write_result_files(result, request, pairs, folder)
    return PaperTable(result, request, pairs, content, folder, files)
