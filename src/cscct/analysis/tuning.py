"""Results of tuning: the trials of a study, the best settings and the importance of each setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..config import Settings
from ..errors import UserError, install_hint
from ..jsontext import to_json
from ..storage import write_text
from ..studies.trials import best_trial
from ..studies.tuning import BEST, Tuning
from ..yamltext import Raw, flatten, merge, nested
from .tables import csv_text

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial
    from pandas import DataFrame

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "waiting"}
NOT_IN_BEST = ("data.validation", "data.order", "seed")  # of the tuning runs only


@dataclass(frozen=True)
class TrialResult:
    """A trial of a study.

    Attributes:
        number: Number of the trial, from 0.
        state: `complete`, `pruned`, `failed` or `running`.
        value: Objective on validation images in percent; of a pruned trial, that after its last task.
        settings: Values of the tuned settings.
        tasks: Number of finished tasks of all its runs.
        seconds: Training time of its runs.
        folders: Folders of its runs.
        error: Reason of a failure.
    """

    number: int
    state: str
    value: float | None
    settings: dict[str, Any]
    tasks: int
    seconds: float
    folders: list[str]
    error: str | None = None


@dataclass(frozen=True)
class TuningResult:
    """Result of tuning.

    Attributes:
        path: Folder of the study.
        metric: Metric on validation images that was maximised.
        trials: All trials, by number.
        best: Best complete trial; None if there is none.
        importance: Share of each setting in the variance of the objective (fANOVA), largest first; empty if it cannot
            be computed, for example from a single complete trial.
        config: Content of `best.yaml`.
    """

    path: Path
    metric: str
    trials: tuple[TrialResult, ...]
    best: TrialResult | None
    importance: dict[str, float]
    config: Raw = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as in trials.json."""
        best = asdict(self.best) if self.best else None
        content = {"metric": self.metric, "best": best, "config": self.config, "importance": self.importance}
        return {**content, "trials": [asdict(trial) for trial in self.trials]}

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of trials.csv by column name: all trials, the best first."""
        rows = []
        for trial in self.ranked():
            row: dict[str, Any] = {"trial": trial.number, "state": trial.state, self.metric: trial.value}
            row |= {**trial.settings, "tasks": trial.tasks, "seconds": trial.seconds}
            rows.append({**row, "folders": " ".join(trial.folders), "error": trial.error})
        return rows

    def ranked(self) -> list[TrialResult]:
        """Return complete trials from best to worst, then pruned ones, then the others."""
        order = list(STATES.values())
        return sorted(self.trials, key=lambda trial: (order.index(trial.state), -(trial.value or 0.0), trial.number))

    def to_frame(self) -> DataFrame:
        """Return the trials as a pandas DataFrame.

        Raises:
            UserError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError(f"to_frame needs pandas, which is not installed: {install_hint('pandas')}.") from error
        return pandas.DataFrame(self.records())

    def write(self) -> list[str]:
        """Write trials.json, trials.csv and, if a trial is complete, best.yaml. Return the names of the files."""
        write_text(self.path / "trials.json", to_json(self.as_dict(), indent=1) + "\n")
        keys = self.trials[0].settings if self.trials else ()
        records = [
            {**row, **{key: str(row[key]) for key in keys}} for row in self.records()
        ]  # settings keep all digits
        lines = [list(records[0]), *(list(record.values()) for record in records)] if records else []
        write_text(self.path / "trials.csv", csv_text(lines))
        if self.best is None:
            return ["trials.json", "trials.csv"]
        about = (
            f"# Best of {len(self.trials)} trials (trial {self.best.number}): {self.metric} {self.best.value:.2f} on "
            f"validation images.\n# Train on all training images: cscct run --config {BEST}\n"
        )
        write_text(self.path / BEST, about + yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))
        return [BEST, "trials.json", "trials.csv"]


def tuning_result(tuning: Tuning, study: Study) -> TuningResult:
    """Return the results of a study so far.

    Args:
        tuning: What is tuned.
        study: Its journal.
    """
    frozen = [trial for trial in study.get_trials() if trial.state.name != "WAITING"]
    trials = tuple(_trial(tuning, trial) for trial in frozen)
    best_frozen = best_trial(frozen)
    best = next((trial for trial in trials if best_frozen is not None and trial.number == best_frozen.number), None)
    config = _config(tuning, tuning.settings(best.settings), best.settings) if best else {}
    return TuningResult(tuning.folder, tuning.metric, trials, best, _importance(study, frozen), config)


def _trial(tuning: Tuning, trial: FrozenTrial) -> TrialResult:
    last = max(trial.intermediate_values, default=0)
    value = trial.value if trial.value is not None else trial.intermediate_values.get(last)
    try:
        runs = tuning.runs(trial.number, trial.params)
    except UserError:  # values that exclude each other
        runs = []
    tasks = [task for run in runs for task in run.result().get("tasks", ())]
    return TrialResult(
        trial.number,
        STATES[trial.state.name],
        value,
        dict(trial.params),
        len(tasks),
        sum(task["seconds"] for task in tasks),
        [run.name for run in runs if run.folder.path.exists()],
        trial.user_attrs.get("error"),
    )


def _config(tuning: Tuning, settings: Settings, values: dict[str, Any]) -> Raw:
    """Return the settings of the study that belong to a method, with the best values, for `--config`."""
    config: Raw = {"method": settings.method, "dataset": settings.dataset, "recipe": settings.recipe}
    for layer in (tuning.config, *tuning.overrides):
        for key, value in flatten(layer).items():
            if key not in (*NOT_IN_BEST, *config, "cscct_version") and not key.startswith(("runtime.", "plugins.")):
                merge(config, nested(key, value))
    for key, value in values.items():
        merge(config, nested(key, value))
    return config


def _importance(study: Study, trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """Return the importance of each setting, or nothing with fewer than two different values of the objective."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if len({trial.value for trial in trials if trial.state.name == "COMPLETE"}) < 2:
        return {}
    try:
        return get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    except (ValueError, RuntimeError):  # the values of a setting do not differ
        return {}
