"""Execution of a plan, for comparisons, sweeps, tuning, results of the paper and the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runs.folder import changed_data
from ..threads import available_cores, default_threads
from .datasets import DatasetCache
from .plan import PlannedRun

if TYPE_CHECKING:
    from ..runs.listeners import Listener
    from .scheduler import Executor, StatusListener, StudyStatus

FIRST_TASKS = "first-tasks"


@dataclass(frozen=True)
class ExecutionOptions:
    """Where and how the runs of a plan are executed.

    Attributes:
        jobs: Runs at a time. By default as many as fit the cores.
        in_process: Whether to use this process if `jobs` is 1 and no run needs several processes.
        plugins: Plugins that runs in other processes load.
        ray: Whether to use a Ray cluster.
        ray_address: Address of the cluster. By default a local one is started.
        retries: How often a run that dies is started again.
    """

    jobs: int | None = None
    in_process: bool = False
    plugins: tuple[Path, ...] = ()
    ray: bool = False
    ray_address: str | None = None
    retries: int = 2

    @property
    def threads(self) -> int:
        """Threads of a run whose settings do not fix them."""
        threads = default_threads()
        return max(1, min(threads, available_cores() // self.jobs)) if self.jobs else threads

    def processes(self, plan: Sequence[PlannedRun]) -> int:
        """Return the number of runs at a time: `jobs`, or as many as fit the cores."""
        threads = max((run.settings.runtime.threads or default_threads() for run in plan), default=1)
        return self.jobs or max(1, available_cores() // threads)

    def in_this_process(self, plan: Sequence[PlannedRun]) -> bool:
        """Return whether the runs are executed in this process, where a listener is notified of every step."""
        single = all(run.settings.runtime.devices * run.settings.runtime.nodes == 1 for run in plan)
        return self.in_process and self.jobs == 1 and not self.ray and single


def execute_plan(
    plan: Sequence[PlannedRun],
    options: ExecutionOptions,
    datasets: DatasetCache,
    *,
    listener: Listener | None = None,
    watch: StatusListener | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> StudyStatus:
    """Execute all runs of a plan that are not finished.

    Args:
        plan: Complete runs, from `complete_plan`.
        options: Where and how the runs are executed.
        datasets: Source of the datasets. Warnings go to `datasets.warn`.
        listener: Callbacks of runs in this process.
        watch: Called with the status of all runs.
        stop: Called regularly. If it returns True, runs write checkpoints and `Interrupted` is raised.

    Returns:
        The status. A run that fails does not raise: see `StudyStatus.raise_for_failures`.

    Raises:
        UserError: If a run cannot be executed with these options, or finished runs used other data.
        Interrupted: If `stop` returned True.
    """
    from .scheduler import Scheduler

    unfinished = [run for run in plan if run.state() != "finished"]
    for run in plan:
        if run not in unfinished:
            run.folder.clear_stale_checkpoints()
    _check_data(plan, datasets)
    with open_executor(plan, options, datasets, plan[0].folder.path.parent, listener, stop) as executor:
        for run in unfinished:
            executor.check(run.settings)
        scheduler = Scheduler(plan, executor, watch or ignore_status, datasets.warn, stop, options.retries)
        return scheduler.run()


@contextmanager
def open_executor(
    plan: Sequence[PlannedRun],
    options: ExecutionOptions,
    datasets: DatasetCache,
    folder: Path,
    listener: Listener | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Executor]:
    """Open the executor that the options select: in this process, in other processes or on a Ray cluster.

    Args:
        plan: Complete runs; without an unfinished one, no cluster is started.
        options: Where and how the runs are executed.
        datasets: Source of the datasets.
        folder: Folder of the runs, in which they share first tasks.
        listener: Callbacks of runs in this process.
        stop: Called after every step of a run in this process.

    Yields:
        The executor.

    Raises:
        UserError: If a dataset in memory would have to be passed to other processes, or there is no cluster.
    """
    from ..runs.first_tasks import FirstTaskCache
    from ..runs.listeners import Listener
    from ..storage import check_not_link

    first_tasks = FirstTaskCache(check_not_link(folder / FIRST_TASKS))
    in_memory = datasets.data_dir is None and any(run.settings.dataset in datasets.in_memory for run in plan)
    if in_memory and not options.in_this_process(plan):  # other processes need a data_dir to read
        raise UserError("A dataset in memory cannot be passed to other processes: use jobs=1 and a single device.")
    if options.in_this_process(plan):
        from .processes import InProcessExecutor

        yield InProcessExecutor(datasets, first_tasks, listener or Listener(), stop)
    elif options.ray and any(run.state() != "finished" for run in plan):
        from .ray import RayExecutor

        with RayExecutor(options, datasets, first_tasks) as executor:
            yield executor
    else:
        from .processes import ProcessExecutor

        yield ProcessExecutor(options.processes(plan), datasets, first_tasks, options.plugins)


def _check_data(plan: Sequence[PlannedRun], datasets: DatasetCache) -> None:
    """Raise a `UserError` if a finished run used other data. Image files and data that no longer exist are skipped."""
    for run in plan:
        stored = run.result().get("data_sha256")
        if stored is None or run.state() != "finished":
            continue
        with suppress(UserError):
            if datasets.fingerprint(run.settings) not in (None, stored):
                break
    else:
        return
    raise UserError(changed_data(run.folder))


def ignore_status(status: StudyStatus, changed: str | None) -> None:
    """Ignore the status: the default for `watch`."""
