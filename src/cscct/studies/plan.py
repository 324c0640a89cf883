"""Many runs, thought through before any begins. Needs neither data nor torch, so a plan is there at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..config import RuntimeSpec, Settings
from ..learn.protocol import with_protocol
from ..runs.first_tasks import first_task_fingerprint
from ..runs.folder import RunFolder, State
from .estimate import measured_ratio, seconds


@dataclass(frozen=True)
class PlannedRun:
    cell: str  # what it is called without its seed: the runs of a cell differ by seed only
    settings: Settings
    folder: RunFolder

    @property
    def name(self) -> str:
        return self.folder.path.name

    def taken_up(self) -> tuple[State, PlannedRun]:
        """How far it is, and the run as it began: another sitting may have other threads, which then stay."""
        state = self.folder.state(self.settings)
        if state == "free":
            return state, self
        return state, replace(self, settings=self.folder.settings())


def completed(planned: PlannedRun, num_classes: int, threads: int) -> PlannedRun:
    """With B, C and threads decided; a run that has begun stays as it began."""
    settings = with_protocol(planned.settings, num_classes)
    runtime = replace(settings.runtime, threads=settings.runtime.threads or threads)
    settings = settings.model_copy(update={"runtime": runtime})
    return replace(planned, settings=settings).taken_up()[1]


@dataclass(frozen=True)
class PlanSummary:
    """What a plan comes to."""

    runs: tuple[tuple[PlannedRun, State, float | None], ...]  # with the seconds still to go, where that can be told
    first_tasks: int  # to be trained
    shared: int  # runs that take one from another
    processes: int
    measured: bool  # whether the times come from runs that are finished, or from a rule of thumb

    @property
    def seconds(self) -> float | None:
        left = [seconds for _, _, seconds in self.runs]
        return None if None in left else sum(one for one in left if one) / self.processes

    def count(self, state: State) -> int:
        return sum(one == state for _, one, _ in self.runs)


def summarize_plan(plan: Sequence[PlannedRun], processes: int) -> PlanSummary:
    """Finished runs take no time, and of runs with the same first task only one trains it."""
    taken = [planned.taken_up() for planned in plan]
    results = [planned.folder.result() for _, planned in taken]
    ratio = measured_ratio(
        [(run.settings, result) for (state, run), result in zip(taken, results, strict=True) if state == "finished"]
    )
    ready = {_first_task(run.settings) for (_, run), result in zip(taken, results, strict=True) if result.get("tasks")}
    train = shared = 0
    runs: list[tuple[PlannedRun, State, float | None]] = []
    for state, planned in taken:
        left: float | None = 0.0
        if state != "finished":
            key = _first_task(planned.settings)
            expected = seconds(planned.settings)
            left = None
            if expected is not None:
                left = (expected[1] + (0.0 if key in ready else expected[0])) * (ratio or 1.0)
            shared += key in ready
            train += key not in ready
            ready.add(key)
        runs.append((planned, state, left))
    return PlanSummary(tuple(runs), train, shared, max(1, processes), ratio is not None)


def _first_task(settings: Settings) -> str:
    """Equal for runs that share their first task. The data, which are not read yet, and the machine are the same for
    all."""
    return first_task_fingerprint(settings.model_copy(update={"runtime": RuntimeSpec()}), "")


def as_json(plan: PlanSummary) -> dict[str, Any]:
    return {
        "runs": [
            {
                "name": planned.name,
                "cell": planned.cell,
                "method": planned.settings.method,
                "seed": planned.settings.seed,
                "recipe": planned.settings.recipe,
                "state": state,
                "seconds_left": left,
                "first_task": _first_task(planned.settings),
                "settings": planned.settings.dump(),
            }
            for planned, state, left in plan.runs
        ],
        "finished": plan.count("finished"),
        "first_tasks_to_train": plan.first_tasks,
        "runs_that_share_one": plan.shared,
        "processes": plan.processes,
        "seconds_left": plan.seconds,
        "times_measured": plan.measured,
    }
