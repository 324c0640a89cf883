"""The part of the Python API with several runs: comparisons, sweeps, results of the paper and reports."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .data import Dataset
from .data.datasets.arrays import save_arrays
from .errors import UserError, Warn
from .experiments import (
    RUNS,
    Hooks,
    comparison,
    dataset_name,
    layers,
    optional_path,
    paper_experiment,
    parameter_sweep,
)
from .plugins import load_plugins
from .progress import display_mode
from .storage import unused_path
from .studies.execution import ExecutionOptions

if TYPE_CHECKING:
    from .analysis.tables import ResultsTable
    from .analysis.tuning import TuningResult


def compare(
    methods: Sequence[str],
    dataset: str | Dataset,
    *,
    seeds: Iterable[int] = (1, 2, 3),
    settings: Mapping[str, Any] | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    recipe: str | None = None,
    plugins: Sequence[str | Path] = (),
    listeners: Sequence[object] = (),
    quiet: bool = False,
) -> ResultsTable:
    """Run several methods with the same seeds and compare them. The result is the same as with `cscct compare`.

    A method with add-ons is compared with its base if that is one of the methods, any other method with the first.

    Args:
        methods: Two or more methods, such as `["lucir", "lucir+cscct"]`.
        dataset: Name of a dataset, or a `Dataset`.
        seeds: Seeds; each method is run with each of them.
        settings: Settings of all runs by dotted name.
        jobs: Number of simultaneous runs. More than one run in separate processes, in which only built-in methods and
            plugins are available; a single run at a time is executed in this process and calls `listeners`.
        out: Folder of the comparison; by default a new folder in `runs/`. Finished runs in it are only read.
        data_dir: Folder of the dataset or its parent.
        recipe: Hyperparameters: `released` (default) or `printed`.
        plugins: Plugin files.
        listeners: Objects with some of the methods of `Listener`.
        quiet: Display no progress. Progress is only displayed in terminals and notebooks.

    Returns:
        Means and standard deviations, and differences paired by seed with their 95 % confidence interval.

    Raises:
        UserError: If an argument is invalid or data is missing.
        RunFailed: If a run fails. The other runs are executed, and the results are written to `out`.
    """
    if isinstance(methods, str):
        raise UserError(f"methods must be a list of two or more methods, not {methods!r}.")
    options = _execution(jobs, plugins)
    name, numbers = dataset_name(dataset), [operator.index(seed) for seed in seeds]
    overrides = layers(settings)
    study = comparison(methods, name, numbers, options, out=optional_path(out), recipe=recipe, overrides=overrides)
    data, in_memory = optional_path(data_dir), {}
    if isinstance(dataset, Dataset):
        in_memory = {name: dataset}
        if jobs > 1:  # other processes read it from a file
            data = study.folder / "data"
            save_arrays(dataset, data)
    written, status = study.run(data, Hooks(display_mode(quiet), listeners), in_memory)
    status.raise_for_failures()
    return written.table


def sweep(
    study: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    ray: bool | str = False,
    retries: int = 2,
    plugins: Sequence[str | Path] = (),
    listeners: Sequence[object] = (),
    quiet: bool = False,
) -> ResultsTable:
    """Run every combination of the settings in a study. The result is the same as with `cscct sweep`.

    Args:
        study: YAML file with the keys `dataset`, `methods`, `seeds`, `recipe`, `set`, `grid` and `linear_lr`, or a
            mapping with these keys.
        out: Folder of the study; by default `runs/NAME` for `NAME.yaml`, and a new folder in `runs/` for a mapping.
            Finished runs in it are only read.
        data_dir: Folder of the dataset or its parent.
        settings: Settings of all runs by dotted name; they override those of the study.
        jobs: Number of simultaneous runs, in separate processes; by default the number of cores divided by the threads
            of a run. With 1, runs are executed in this process and call `listeners`.
        ray: True to use a Ray cluster, or its address.
        retries: How often a run whose process died is started again.
        plugins: Plugin files.
        listeners: Objects with some of the methods of `Listener`.
        quiet: Display no progress. Progress is only displayed in terminals and notebooks.

    Returns:
        One row per method and combination: means and standard deviations over seeds, and differences paired by seed.

    Raises:
        UserError: If the study or another argument is invalid, or data is missing.
        RunFailed: If a run fails. The other runs are executed, and the results are written to `out`.
    """
    options = _execution(jobs, plugins)
    options = replace(options, ray=bool(ray), ray_address=ray if isinstance(ray, str) else None, retries=retries)
    source = study if isinstance(study, Mapping) else Path(study)
    experiment = parameter_sweep(source, options, optional_path(out), layers(settings))
    written, status = experiment.run(optional_path(data_dir), Hooks(display_mode(quiet), listeners))
    status.raise_for_failures()
    return written.table


def tune(
    method: str,
    dataset: str | Dataset,
    *,
    over: Mapping[str, str | Sequence[Any]],
    trials: int = 20,
    seeds: Iterable[int] = (101,),
    metric: str = "average_incremental_accuracy",
    prune: bool = True,
    settings: Mapping[str, Any] | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    recipe: str | None = None,
    plugins: Sequence[str | Path] = (),
    listeners: Sequence[object] = (),
    quiet: bool = False,
) -> TuningResult:
    """Tune settings of a method on validation images. The result is the same as with `cscct tune`.

    Args:
        method: Name of a method with optional additions, such as `lucir+cscct`.
        dataset: Name of a dataset, or a `Dataset`.
        over: Values of each tuned setting: `"0.1:30:log"` or `(0.1, 30, "log")` for a range, `"official,batchmean"` or
            a list for choices.
        trials: Number of trials of the study, with those that `out` already contains.
        seeds: Seeds of the runs of each trial. Report results with other seeds.
        metric: Metric on validation images whose mean over the seeds is maximised.
        prune: Whether a trial is stopped after a task if it is below the median of completed ones, from the second half
            of its first run on.
        settings: Settings of all runs by dotted name; `data.validation` is required.
        jobs: Number of simultaneous trials, in separate processes if it is more than one.
        out: Folder of the study; by default a new folder in `runs/`. A study in it is continued.
        data_dir: Folder of the dataset or its parent.
        recipe: Hyperparameters: `released` (default) or `printed`.
        plugins: Plugin files.
        listeners: Objects with some of the methods of `Listener`.
        quiet: Display no progress. Progress is only displayed in terminals and notebooks.

    Returns:
        The trials, the best settings and the importance of each setting.

    Raises:
        UserError: If an argument is invalid, validation images are missing or Optuna is not installed.
        RunFailed: If no trial is complete.
    """
    from .studies.tuning import Tuning
    from .tuning import tune_settings

    options, name = _execution(jobs, plugins), dataset_name(dataset)
    folder = optional_path(out) or unused_path(RUNS, f"tune-{method}-{name}")
    numbers = tuple(operator.index(seed) for seed in seeds)
    tuning = Tuning(method, name, folder, dict(over), numbers, metric, recipe, overrides=layers(settings))
    data, in_memory = optional_path(data_dir), {}
    if isinstance(dataset, Dataset):
        in_memory = {name: dataset}
        if jobs > 1:  # other processes read it from a file
            tuning.open()  # the folder must be new, or that of this study
            data = folder / "data"
            save_arrays(dataset, data)
    hooks = Hooks(display_mode(quiet), listeners)
    return tune_settings(tuning, trials, options, data, hooks, prune=prune, datasets=in_memory).result


def reproduce(
    name: str,
    *,
    scale: str = "paper",
    recipe: str = "released",
    order: str | None = None,
    seeds: Iterable[int] = (1, 2, 3),
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Reproduce a table or figure of the paper. The result is the same as with `cscct reproduce`.

    Args:
        name: `table1`, `table2`, `table3`, `s1`, `s2`, `apt-act`, `tsne` or `phases`.
        scale: Size of the experiment: `paper`, or a smaller scale such as `cpu`.
        recipe: Hyperparameters: `released` or `printed`.
        order: Class order; by default that of the recipe. `podnet`: the three orders of PODNet, selected by seed.
        seeds: Seeds; each cell is run with each of them.
        settings: Settings of all runs by dotted name.
        jobs: Number of simultaneous runs, in separate processes; by default the number of cores divided by the threads
            of a run.
        out: Folder of the runs; by default `runs/paper-SCALE-RECIPE`. Finished runs in it are only read.
        data_dir: Folder of the dataset or its parent.
        quiet: Display no progress. Progress is only displayed in terminals and notebooks.

    Returns:
        Content of `table.json`: for each cell the measured and the published accuracy.

    Raises:
        UserError: If an argument is invalid or data is missing.
        RunFailed: If a run fails. The other runs are executed, and the results are written to `out`.
    """
    from .paper.cells import Request

    request = Request(scale, recipe, order, tuple(operator.index(seed) for seed in seeds))
    experiment = paper_experiment(name, request, _execution(jobs), optional_path(out), layers(settings))
    written, status = experiment.run(optional_path(data_dir), Hooks(display_mode(quiet)))
    status.raise_for_failures()
    return written.content


def report(
    runs: str | Path | Iterable[str | Path],
    out: str | Path | None = None,
    *,
    title: str | None = None,
    log_axis: bool = False,
    pdf: bool = False,
    tensorboard: bool = False,
    warn: Warn = warnings.warn,
) -> Path:
    """Write an HTML report of stored runs, with figures as PNG, SVG and CSV files.

    Args:
        runs: Folders of runs, comparisons, sweeps or paper results.
        out: Folder of the report; by default `report` in the folder of `runs`, or in the working directory if there are
            several.
        title: Title of the page; by default methods and datasets.
        log_axis: Whether accuracy curves have a logarithmic accuracy axis.
        pdf: Whether figures are also written as vector PDF, with the width and font size of a column of a paper.
        tensorboard: Whether TensorBoard event files are also written.
        warn: Called with each warning.

    Returns:
        Path of the page.

    Raises:
        UserError: If the folders contain no run, or the report cannot be written.
    """
    from .reporting import find_runs, write_report

    folders = [Path(runs)] if isinstance(runs, str | Path) else [Path(folder) for folder in runs]
    default = folders[0] / "report" if len(folders) == 1 else Path("report")
    options: dict[str, Any] = {"log_axis": log_axis, "pdf": pdf, "tensorboard": tensorboard, "title": title}
    return write_report(find_runs(folders), optional_path(out) or default, **options, warn=warn)


def _execution(jobs: int | None, plugins: Sequence[str | Path] = ()) -> ExecutionOptions:
    """Load plugins and return the options of runs that use them."""
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be at least 1, not {jobs}.")
    files = tuple(Path(file) for file in plugins)
    load_plugins(files)
    return ExecutionOptions(jobs=jobs, in_process=True, plugins=files)
