"""From a plan to finished runs: the one way for comparisons, sweeps, the paper's tables and the Python interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..learn.protocol import available_cores
from ..runs.folder import changed_data
from .datasets import DatasetCache
from .plan import PlannedRun

if TYPE_CHECKING:
    from ..runs.listeners import Listener
    from .scheduler import StatusListener, StudyStatus

FIRST_TASKS = "first-tasks"


@dataclass(frozen=True)
class ExecutionOptions:
    """Where and how the runs of a plan are carried out."""

    jobs: int | None = None  # runs at a time; None: as many as there are cores for
    in_process: bool = False  # one run after another in this process, if jobs is 1 and no run needs several
    plugins: tuple[Path, ...] = ()
    ray: bool = False
    ray_address: str | None = None
    retries: int = 2  # how often a run that dies is started again

    @property
    def threads(self) -> int:
        """Threads of a run that leaves them open."""
        return max(1, available_cores() // self.jobs) if self.jobs else available_cores()

    def processes(self, plan: Sequence[PlannedRun]) -> int:
        """As many runs at a time as there are cores for their threads, unless it is said."""
        threads = max((run.settings.runtime.threads or available_cores() for run in plan), default=1)
        return self.jobs or max(1, available_cores() // threads)

    def in_this_process(self, plan: Sequence[PlannedRun]) -> bool:
        """Whether the runs are carried out here, where a listener hears of every step."""
        alone = all(run.settings.runtime.devices * run.settings.runtime.nodes == 1 for run in plan)
        return self.in_process and self.jobs == 1 and not self.ray and alone


def carry_out(
    plan: Sequence[PlannedRun],
    options: ExecutionOptions,
    datasets: DatasetCache,
    *,
    listener: Listener | None = None,
    watch: StatusListener | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> StudyStatus:
    """All runs of a complete plan (`complete_plan`) that are not finished yet. Warnings go to `datasets.warn`.

    listener: hears of the steps of runs in this process. watch: is told how far the runs are. stop: asked again and
    again; when it returns True, runs write checkpoints and `Interrupted` is raised. A run that fails raises nothing
    here: see `StudyStatus.raise_for_failures`.
    """
    from ..runs.files import not_a_link
    from ..runs.first_tasks import FirstTaskCache
    from ..runs.listeners import Listener
    from .scheduler import Scheduler

    left = [run for run in plan if run.state() != "finished"]
    for run in plan:
        if run not in left:
            run.folder.clear_stale_checkpoints()
    first_tasks = FirstTaskCache(not_a_link(plan[0].folder.path.parent / FIRST_TASKS))
    executor: Any
    context: Any = nullcontext()
    _check_data(plan, datasets)
    in_memory = datasets.data_dir is None and any(run.settings.dataset in datasets.given for run in plan)
    if in_memory and not options.in_this_process(plan):  # with a data_dir, they read it from there
        raise UserError("A dataset in memory cannot be handed to other processes: use jobs=1 and a single device.")
    if options.in_this_process(plan):
        from .processes import InProcessExecutor

        executor = InProcessExecutor(datasets, first_tasks, listener or Listener(), stop)
    elif options.ray and left:
        from .ray import RayExecutor

        context = executor = RayExecutor(options, datasets, first_tasks)
    else:
        from .processes import ProcessExecutor

        executor = ProcessExecutor(options.processes(plan), datasets, first_tasks, options.plugins)
    with context:
        for run in left:
            executor.check(run.settings)
        scheduler = Scheduler(plan, executor, watch or _unwatched, datasets.warn, stop, options.retries)
        return scheduler.run()


def _check_data(plan: Sequence[PlannedRun], datasets: DatasetCache) -> None:
    """Finished runs are refused if they were made with other data. Image files are not read for this, nor is data that
    is not there any more."""
    for run in plan:
        stored = run.result().get("data_sha256")
        if stored is None or run.state() != "finished":
            continue
        with suppress(UserError):
            found = datasets.fingerprint(run.settings)
            if found not in (None, stored):
                break
    else:
        return
    raise UserError(changed_data(run.folder))


def _unwatched(status: StudyStatus, changed: str | None) -> None:
    """The default: nothing is shown."""
