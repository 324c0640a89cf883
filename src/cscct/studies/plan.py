"""The runs of a study before any begins. Needs neither data nor torch, so a plan is there at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ..config import RuntimeSpec, Settings
from ..errors import DamagedRun
from ..learn.protocol import with_protocol
from ..runs.first_tasks import first_task_fingerprint
from ..runs.folder import RunFolder, State
from .datasets import DatasetCache
from .estimate import START_SECONDS, measured_ratio, rule_holds, seconds

PlanState = State | Literal["damaged"]


@dataclass(frozen=True)
class PlannedRun:
    """A run of a study: its settings and where it is to be."""

    group: str  # its name without the seed: the runs of a group differ by seed only
    settings: Settings
    folder: RunFolder

    @property
    def name(self) -> str:
        return self.folder.path.name

    @cached_property
    def first_task(self) -> str:
        """Equal for runs of a plan that can share their first task. The data, which are not read yet, and the machine
        are the same for all of them."""
        return first_task_fingerprint(self.settings.model_copy(update={"runtime": RuntimeSpec()}), "")

    def state(self) -> PlanState:
        """How far it is; a folder that holds another run is an error. Other threads do not make another run."""
        return "damaged" if self.damage() else self.folder.state(self.settings)

    def damage(self) -> str | None:
        """A sentence about a file of its folder that cannot be used, if there is one."""
        try:
            if self.folder.state(self.settings) != "free":
                self.folder.settings()
            self.folder.result()
        except DamagedRun as error:
            return str(error)
        return None

    def result(self) -> dict[str, Any]:
        """The result so far; empty where there is none that can be read."""
        try:
            return self.folder.result()
        except DamagedRun:
            return {}

    def has_first_task(self) -> bool:
        """Whether its first task is done."""
        return bool(self.result().get("tasks"))

    def begin(self) -> None:
        """Makes the folder, with the config in it, where there is none yet."""
        if self.state() == "free":
            self.folder.create(self.settings)

    def as_begun(self) -> PlannedRun:
        """The run as an earlier process began it: its threads and device stay."""
        return self if self.state() in ("free", "damaged") else replace(self, settings=self.folder.settings())


def complete_plan(plan: Sequence[PlannedRun], datasets: DatasetCache, threads: int) -> list[PlannedRun]:
    """With B, C and threads decided where they were left open; runs that have begun stay as they began."""
    counts: dict[str, int] = {}
    completed = []
    for run in plan:
        if run.settings.dataset not in counts:
            counts[run.settings.dataset] = datasets.count_classes(run.settings)
        settings = with_protocol(run.settings, counts[run.settings.dataset])
        runtime = replace(settings.runtime, threads=settings.runtime.threads or threads)
        completed.append(replace(run, settings=settings.model_copy(update={"runtime": runtime})).as_begun())
    return completed


@dataclass(frozen=True)
class PlanSummary:
    """What a plan comes to."""

    runs: tuple[tuple[PlannedRun, PlanState, float | None], ...]  # with the seconds still to go, where that can be told
    first_tasks: int  # to be trained
    shared: int  # runs that take one from another
    processes: int
    measured: bool  # whether the times come from runs that are finished, or from a rule of thumb
    on_gpu: bool = False  # whether a GPU is asked for

    @property
    def seconds(self) -> float | None:
        left = [seconds for _, _, seconds in self.runs]
        return None if None in left else sum(one for one in left if one) / self.processes

    def count(self, state: PlanState) -> int:
        return sum(one == state for _, one, _ in self.runs)


def summarize_plan(plan: Sequence[PlannedRun], processes: int) -> PlanSummary:
    """Finished runs take no time, and of runs with the same first task only one trains it."""
    states = [run.state() for run in plan]
    finished = [(run.settings, run.result()) for run, state in zip(plan, states, strict=True) if state == "finished"]
    ratio = measured_ratio(finished)
    ready = {run.first_task for run in plan if run.has_first_task()}
    train = shared = 0
    runs: list[tuple[PlannedRun, PlanState, float | None]] = []
    for run, state in zip(plan, states, strict=True):
        left: float | None = 0.0
        if state not in ("finished", "damaged"):
            left = _seconds_left(run, ratio, run.first_task in ready)
            shared += run.first_task in ready
            train += run.first_task not in ready
            ready.add(run.first_task)
        runs.append((run, state, left))
    on_gpu = any(run.settings.runtime.device in ("cuda", "mps") for run in plan)
    return PlanSummary(tuple(runs), train, shared, max(1, processes), ratio is not None, on_gpu)


def _seconds_left(run: PlannedRun, ratio: float | None, first_task_ready: bool) -> float | None:
    """None where it cannot be told: until a run is finished there is only a rule of thumb, for ResNets on CPUs."""
    expected = seconds(run.settings)
    if expected is None or (ratio is None and not rule_holds(run.settings)):
        return None
    first, rest = expected
    return START_SECONDS + (rest + (0.0 if first_task_ready else first)) * (ratio or 1.0)


def as_json(plan: PlanSummary) -> dict[str, Any]:
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
        "times_measured": plan.measured,
    }
