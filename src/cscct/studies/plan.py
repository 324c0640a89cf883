"""The runs of a study before they are executed. Planning needs neither data nor torch, and is fast."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ..config import PrecisionName, RuntimeSpec, Settings
from ..errors import DamagedRun
from ..learn.protocol import with_precision, with_protocol
from ..runs.first_tasks import first_task_fingerprint
from ..runs.folder import RunFolder, State
from .datasets import DatasetCache

PlanState = State | Literal["damaged"]


@dataclass(frozen=True)
class PlannedRun:
    """A run of a study.

    Attributes:
        group: Name without the seed. The runs of a group differ by seed only.
        settings: Settings of the run.
        folder: Folder of the run, which need not exist.
    """

    group: str
    settings: Settings
    folder: RunFolder

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.path.name

    @cached_property
    def first_task(self) -> str:
        """Hash that is equal for runs of a plan that can share their first task.

        It ignores data and machine, which are the same for the whole plan.
        """
        return first_task_fingerprint(self.settings.model_copy(update={"runtime": RuntimeSpec()}), "")

    def state(self) -> PlanState:
        """Return the state of the folder. Raise a `UserError` if it contains another run. See `RunFolder.state`."""
        return "damaged" if self.damage() else self.folder.state(self.settings)

    def damage(self) -> str | None:
        """Return a message about a damaged file of the folder, or None."""
        try:
            if self.folder.state(self.settings) != "free":
                self.folder.settings()
            self.folder.result()
        except DamagedRun as error:
            return str(error)
        return None

    def result(self) -> dict[str, Any]:
        """Return the result so far, or an empty dictionary if it does not exist or is damaged."""
        try:
            return self.folder.result()
        except DamagedRun:
            return {}

    def has_first_task(self) -> bool:
        """Return whether the first task is finished."""
        return bool(self.result().get("tasks"))

    def begin(self) -> None:
        """Create the folder and its config if it is free."""
        if self.state() == "free":
            self.folder.create(self.settings)

    def as_begun(self) -> PlannedRun:
        """Return the run with the threads and the device that it was started with, if it was started."""
        return self if self.state() in ("free", "damaged") else replace(self, settings=self.folder.settings())


def complete_plan(plan: Sequence[PlannedRun], datasets: DatasetCache, threads: int) -> list[PlannedRun]:
    """Fill in B, C and threads of all runs.

    Args:
        plan: The runs.
        datasets: Source of the number of classes.
        threads: Threads of runs whose settings do not fix them. Runs that were started keep theirs.

    Returns:
        The complete runs.
    """
    counts: dict[str, int] = {}
    completed = []
    for run in plan:
        if run.settings.dataset not in counts:
            counts[run.settings.dataset] = datasets.count_classes(run.settings)
        settings = with_protocol(run.settings, counts[run.settings.dataset])
        runtime = replace(settings.runtime, threads=settings.runtime.threads or threads)
        completed.append(replace(run, settings=settings.model_copy(update={"runtime": runtime})).as_begun())
    return _with_chosen_precision(plan, completed)


def _with_chosen_precision(plan: Sequence[PlannedRun], completed: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return runs whose precision is open with the one that started runs of the plan chose for the same network."""
    chosen: dict[object, set[PrecisionName]] = {}
    for planned, run in zip(plan, completed, strict=True):
        if planned.settings.numerics.precision == "auto" != run.settings.numerics.precision:
            chosen.setdefault(_trained_network(run), set()).add(run.settings.numerics.precision)
    runs = []
    for run in completed:
        (*precisions,) = chosen.get(_trained_network(run), ())
        settings = with_precision(run.settings, precisions[0]) if len(precisions) == 1 else run.settings
        runs.append(replace(run, settings=settings))
    return runs


def _trained_network(run: PlannedRun) -> object:
    network = run.settings.network
    return network.backbone, network.depth, network.train_from, network.train_backbone and bool(run.settings.terms)


@dataclass(frozen=True)
class PlanSummary:
    """Counts and times of a plan.

    Attributes:
        runs: Each run with its state and the seconds left, or None as long as no run of its group is finished.
        first_tasks: Number of first tasks to be trained.
        shared: Number of runs that reuse the first task of another run.
        processes: Runs at a time.
    """

    runs: tuple[tuple[PlannedRun, PlanState, float | None], ...]
    first_tasks: int
    shared: int
    processes: int

    @property
    def seconds(self) -> float | None:
        """Seconds left for all runs, or None if the time of a run is unknown."""
        times = [seconds for _, _, seconds in self.runs]
        return None if None in times else sum(seconds for seconds in times if seconds) / self.processes

    def count(self, state: PlanState) -> int:
        """Return the number of runs in a state."""
        return sum(run_state == state for _, run_state, _ in self.runs)


def summarize_plan(plan: Sequence[PlannedRun], processes: int) -> PlanSummary:
    """Summarize a plan. Times are those of finished runs of the same group, which differ by seed only.

    Args:
        plan: Complete runs.
        processes: Runs at a time.
    """
    states = [run.state() for run in plan]
    measured: dict[str, list[float]] = {}
    for run, state in zip(plan, states, strict=True):
        if state == "finished":
            measured.setdefault(run.group, []).append(_seconds_spent(run))
    ready = {run.first_task for run in plan if run.has_first_task()}
    train = shared = 0
    runs: list[tuple[PlannedRun, PlanState, float | None]] = []
    for run, state in zip(plan, states, strict=True):
        left: float | None = 0.0
        if state not in ("finished", "damaged"):
            times = measured.get(run.group)
            left = max(0.0, statistics.median(times) - _seconds_spent(run)) if times else None
            shared += run.first_task in ready
            train += run.first_task not in ready
            ready.add(run.first_task)
        runs.append((run, state, left))
    return PlanSummary(tuple(runs), train, shared, max(1, processes))


def _seconds_spent(run: PlannedRun) -> float:
    """Return the time of all finished tasks of a run."""
    return float(sum(task["seconds"] for task in run.result().get("tasks", ())))


def as_json(plan: PlanSummary) -> dict[str, Any]:
    """Return a plan in JSON, with the complete settings of each run."""
    return {
        "runs": [
            {
                "name": run.name,
                "group": run.group,
                "method": run.settings.method,
                "seed": run.settings.seed,
                "recipe": run.settings.recipe,
                "state": state,
                "seconds_left": left,
                "first_task": run.first_task,
                "settings": run.settings.dump(),
            }
            for run, state, left in plan.runs
        ],
        "finished": plan.count("finished"),
        "first_tasks_to_train": plan.first_tasks,
        "runs_that_share_one": plan.shared,
        "processes": plan.processes,
        "seconds_left": plan.seconds,
    }
