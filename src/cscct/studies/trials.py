"""Execution of the trials of a study: scheduling, values after each task, and pruning."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..metrics import summarize
from ..seeding import derive
from .execution import ignore_status
from .plan import PlannedRun
from .scheduler import Executor, Scheduler, StudyStatus, in_use
from .tuning import JOURNAL, Tuning, file_lock

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

COMPLETE_BEFORE_PRUNING = 5  # trials


def running_values(results: Sequence[Mapping[str, Any]], metric: str) -> dict[int, float]:
    """Return the objective after each task of the runs of a trial, which are executed one after another.

    Args:
        results: Results of the runs so far, in the order of the seeds; empty for runs that have not started.
        metric: Metric on validation images.

    Returns:
        By number of finished tasks of all runs: the mean over the runs of the metric after their tasks so far. Steps at
        which the metric is not defined are missing.
    """
    values: dict[int, float] = {}
    complete: list[float] = []
    step = 0
    for result in results:
        accuracies = result.get("validation") or {}
        rows = accuracies.get("matrix", {}).get(result.get("headline"), [])
        value = None
        for done in range(1, len(rows) + 1):
            value, step = summarize(rows[:done], accuracies["task_sizes"]).get(metric), step + 1
            if isinstance(value, float):
                values[step] = statistics.mean([*complete, value])
        if result.get("status") != "finished" or not isinstance(value, float):
            break
        complete.append(value)
    return values


def below_median(value: float, step: int, completed: Sequence[FrozenTrial]) -> bool:
    """Return whether a trial is pruned: it is below the median of the completed trials at the same step.

    Optuna's own median pruner compares the best value so far, which is the first one where accuracy falls from task to
    task.
    """
    others = [trial.intermediate_values[step] for trial in completed if step in trial.intermediate_values]
    return len(others) >= COMPLETE_BEFORE_PRUNING and value < statistics.median(others)


@dataclass(frozen=True)
class TuningProgress:
    """State of a study while it is executed.

    Attributes:
        trials: Planned number of trials.
        ended: Number of trials that have ended.
        running: Finished fraction of each trial that this process executes, by number.
        best: Best complete trial so far.
        last: Trial that has just ended.
    """

    trials: int
    ended: int
    running: dict[int, float]
    best: FrozenTrial | None
    last: FrozenTrial | None = None


class TrialScheduler(Scheduler):
    """Executes trials, up to `executor.slots` at a time. The runs of a trial are executed one after another.

    Args:
        tuning: What is tuned.
        study: Its journal, see `Tuning.open`.
        trials: Number of trials of the study, with those of earlier and other processes.
        executor: Where the runs are executed.
        prepare: Completes the settings of a run.
        prune: Whether trials below the median are stopped.
        report: Called with the progress.
        warn: Called with each warning of a run.
        stop: Called regularly. If it returns True, all runs write checkpoints and `run` raises `Interrupted`.
        retries: How often a run that dies is started again.
    """

    def __init__(
        self,
        tuning: Tuning,
        study: Study,
        trials: int,
        executor: Executor,
        prepare: Callable[[PlannedRun], PlannedRun],
        *,
        prune: bool,
        report: Callable[[TuningProgress], None],
        warn: Callable[[str], None],
        stop: Callable[[], bool],
        retries: int = 2,
    ):
        super().__init__([], executor, ignore_status, warn, stop, retries)
        self.tuning, self.study, self.trials, self.prepare = tuning, study, trials, prepare
        self.prune, self.report, self.folder = prune, report, tuning.folder
        self.active: dict[int, list[PlannedRun]] = {}
        self.numbers: dict[str, int] = {}
        self.reported: dict[int, int] = {}  # last reported step
        self.resumed = False  # whether trials of dead processes have been looked for
        self.lock = file_lock(tuning.folder / JOURNAL, "creation")
        self.claims: dict[int, Any] = {}  # locks of active trials

    def run(self) -> StudyStatus:
        try:
            return super().run()
        finally:
            for number in list(self.claims):
                self._release(number)

    def refill(self) -> None:
        """Report finished tasks, prune, and start trials while there are free slots."""
        for number in list(self.active):
            self.observe(number)
        while not self.stop() and len(self.active) < self.executor.slots:
            trial = self._next()
            if trial is None:
                break
            self._begin(trial)
        self._notify()

    def cancelling(self) -> bool:
        """Return whether a running run was cancelled: runs in this process poll it after every step."""
        return any(self.status.states.get(name) == "running" for name in self.cancelled)

    def observe_running(self) -> None:
        """Report the finished tasks of all active trials: called by the listener of runs in this process."""
        for number in list(self.active):
            self.observe(number)
        self._notify()

    def observe(self, number: int) -> None:
        """Report new values of a trial, and cancel its run if it is pruned."""
        from optuna.trial import Trial, TrialState

        results = [run.result() for run in self.active[number]]
        steps = running_values(results, self.tuning.metric)
        new = {step: value for step, value in steps.items() if step > self.reported[number]}
        if not new:
            return
        trial = Trial(self.study, self._trial(number)._trial_id)
        for step, value in new.items():
            trial.report(value, step)
        self.reported[number] = step
        running = next((run.name for run in self.active[number] if self.status.states.get(run.name) == "running"), None)
        completed = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        unfinished = results[-1].get("status") != "finished"
        warm = 2 * step > len(results[0]["task_sizes"])  # fewer tasks say little about the others
        if self.prune and running and unfinished and warm and below_median(value, step, completed):
            self.cancel(running)

    def _trial(self, number: int) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[number]

    def _next(self) -> FrozenTrial | None:
        """Return an unfinished trial of a process that ended, or a new one; None if all trials are started."""
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        with self.lock:  # no other process may count trials until this one has its own
            begun = [t for t in self.study.get_trials(deepcopy=False) if t.state != TrialState.WAITING]
            if not self.resumed or len(begun) >= self.trials:
                for trial in begun:
                    waiting = trial.state == TrialState.RUNNING and trial.number not in self.active
                    if waiting and not self._held(trial) and self._claim(trial.number):
                        return trial
                self.resumed = True
            if len(begun) >= self.trials:
                return None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # constant_liar is experimental in some versions
                # The seed depends on the trial: a study that was killed continues as if it had not been.
                self.study.sampler = TPESampler(seed=derive(len(begun), "trial") % 2**32, constant_liar=True)
            distributions = {parameter.key: parameter.distribution() for parameter in self.tuning.parameters}
            number = self.study.ask(distributions).number
            self._claim(number)
            return self._trial(number)

    def _held(self, trial: FrozenTrial) -> bool:
        """Return whether another process works on a run of a trial, also one that its own process left behind."""
        return any(in_use(run) for run in self.tuning.runs(trial.number, trial.params))

    def _claim(self, number: int) -> bool:
        """Take a trial, from before its first run is started until it ends. Return False if another process has it."""
        from filelock import Timeout

        lock = file_lock(self.tuning.folder / JOURNAL, f"trial-{number:04}")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        self.claims[number] = lock
        return True

    def _release(self, number: int) -> None:
        lock = self.claims.pop(number, None)
        if lock is not None:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def _begin(self, trial: FrozenTrial) -> None:
        try:
            runs = [self.prepare(run) for run in self.tuning.runs(trial.number, trial.params)]
        except UserError as error:  # values that exclude each other
            self._end(trial.number, "failed", str(error))
            return
        self.active[trial.number] = runs
        self.reported[trial.number] = max(trial.intermediate_values, default=0)
        self.numbers |= {run.name: trial.number for run in runs}
        self._continue(trial.number)

    def _continue(self, number: int) -> None:
        """Start the next run of a trial, or end the trial."""
        unfinished = [run for run in self.active[number] if run.state() != "finished"]
        if unfinished:
            self.add(unfinished[0])
            return
        values = running_values([run.result() for run in self.active[number]], self.tuning.metric)
        tasks = sum(len(run.result()["tasks"]) for run in self.active[number])
        self._end(number, "complete", f"{self.tuning.metric} is not defined.", values.get(tasks))

    def _change(self, name: str, state: str, message: str = "") -> None:
        super()._change(name, state, message)
        number = self.numbers[name]
        if state == "finished":
            self.observe(number)
            self._continue(number)
        elif state in ("cancelled", "failed"):
            self._end(number, {"cancelled": "pruned"}.get(state, state), message)

    def _end(self, number: int, state: str, message: str = "", value: float | None = None) -> None:
        """Store how a trial ended."""
        from optuna.trial import Trial, TrialState

        ended = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}[state]
        if state == "complete" and value is None:
            ended = TrialState.FAIL
        if ended == TrialState.FAIL and not self._trial(number).state.is_finished():
            Trial(self.study, self._trial(number)._trial_id).set_user_attr("error", message)
        self.study.tell(number, value if ended == TrialState.COMPLETE else None, ended, skip_if_finished=True)
        self._release(number)
        self.active.pop(number, None)
        self._notify(self._trial(number))

    def _notify(self, last: FrozenTrial | None = None) -> None:
        trials = self.study.get_trials(deepcopy=False)
        running = {}
        for number, runs in self.active.items():
            tasks = len(runs[0].result().get("task_sizes", ()))
            running[number] = self.reported[number] / (tasks * len(runs)) if tasks else 0.0
        ended = sum(trial.state.is_finished() for trial in trials)
        self.report(TuningProgress(self.trials, ended, running, best_trial(trials), last))


def best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Return the complete trial with the highest value, the first of several; None if no trial is complete."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return max(complete, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)
