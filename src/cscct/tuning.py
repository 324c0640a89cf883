"""Implementation of tuning, shared by the Python API and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .analysis.tuning import TuningResult, tuning_result
from .errors import RunFailed, UserError
from .experiments import Hooks
from .reporting.tuning import write_tuning
from .runs.listeners import Listeners
from .studies.datasets import DatasetCache
from .studies.execution import ExecutionOptions, open_executor
from .studies.plan import complete_plan
from .studies.trials import TrialScheduler
from .studies.tuning import JOURNAL, Tuning, file_lock
from .ui.tuning import TrialsDisplay

if TYPE_CHECKING:
    from .data import Dataset


class TuningFiles(NamedTuple):
    """Result of tuning, and the names of the files in its folder."""

    result: TuningResult
    files: list[str]


def tune_settings(
    tuning: Tuning,
    trials: int,
    options: ExecutionOptions,
    data_dir: Path | None,
    hooks: Hooks,
    *,
    prune: bool = True,
    datasets: Mapping[str, Dataset] | None = None,
) -> TuningFiles:
    """Execute the trials of a study that are missing and write the results.

    Args:
        tuning: What is tuned.
        trials: Number of trials, with those that the folder already contains.
        options: Where and how the runs are executed; `jobs` trials at a time.
        data_dir: Folder of the datasets.
        hooks: Display, warnings and stopping.
        prune: Whether trials below the median are stopped after a task.
        datasets: Datasets in memory by name.

    Raises:
        UserError: If the data is missing, or the folder contains another study.
        RunFailed: If no trial is complete.
    """
    if trials < 1:
        raise UserError(f"The number of trials must be at least 1, not {trials}.")
    schedulers: list[TrialScheduler] = []

    class AfterTask:
        def task_finished(self, entry: Mapping[str, Any]) -> None:
            schedulers[0].observe_running()

    def stop() -> bool:
        return hooks.stop() or any(scheduler.cancelling() for scheduler in schedulers)

    with TrialsDisplay(hooks.mode) as display:
        cache = DatasetCache(data_dir, hooks.warn, hooks.interruptible(display.reading), datasets)
        plan = complete_plan(tuning.runs(0, tuning.defaults() or {}), cache, options.threads)
        listener = Listeners([AfterTask(), *hooks.listeners])
        with open_executor(plan, options, cache, tuning.folder, listener, stop) as executor:
            executor.check(plan[0].settings)  # before anything is written
            study = tuning.open()
            scheduler = TrialScheduler(
                tuning,
                study,
                trials,
                executor,
                lambda run: complete_plan([run], cache, options.threads)[0],
                prune=prune,
                report=display.show,
                warn=hooks.warn,
                stop=hooks.stop,
                retries=options.retries,
            )
            schedulers.append(scheduler)
            try:
                scheduler.run()
            finally:  # also of an interrupted study
                with file_lock(tuning.folder / JOURNAL, "results"):  # what is written last contains all trials
                    result = tuning_result(tuning, study)
                    files = write_tuning(result)
    if result.best is None:
        reasons = "; ".join(dict.fromkeys(trial.error for trial in result.trials if trial.error))
        raise RunFailed(f"No trial is complete. {reasons}".strip())
    return TuningFiles(result, files)
