"""Execution of one run of a study: in this process, in a separate process or on a cluster.

`ProcessExecutor` starts this module as a program (`python -m cscct.studies.worker ORDER`). It writes a checkpoint and
ends on an interrupt or terminate signal, and when its parent process is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import Interrupted, RunFailed, UserError
from ..plugins import load_plugins
from ..runs.first_tasks import FirstTaskCache
from ..runs.folder import RunFolder
from ..runs.listeners import Listener
from ..runs.runner import execute
from ..streams import protect_streams
from .datasets import DatasetCache

EXIT_CODES = {"finished": 0, "failed": 1, "refused": 2, "stopped": 130}


class RunOutcome(NamedTuple):
    """How a run ended.

    Attributes:
        status: `died` runs can be started again. `failed` and `refused` runs would end in the same way.
        message: Reason, for every status except `finished`.
        warnings: Warnings during the run.
    """

    status: Literal["finished", "failed", "refused", "stopped", "died"]
    message: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkOrder:
    """Arguments of a worker in another process. The settings are in the folder's config.yaml."""

    folder: str
    first_tasks: str
    data_dir: str | None = None
    plugins: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the order as a command-line argument."""
        return json.dumps(asdict(self))


def execute_run(
    folder: RunFolder,
    datasets: DatasetCache,
    first_tasks: FirstTaskCache,
    listener: Listener,
    stop: Callable[[], bool],
    plugins: Sequence[Path] = (),
) -> RunOutcome:
    """Execute or continue the run whose settings are in a folder.

    Args:
        folder: Run folder with a config.yaml.
        datasets: Source of the dataset. Warnings go to `datasets.warn`.
        first_tasks: Weights after the first task, shared by runs.
        listener: Callbacks.
        stop: Called after every step. If it returns True, the run writes a checkpoint and stops.
        plugins: Loaded plugins, stored as a hint for `cscct resume`.

    Returns:
        The outcome. Errors of the run are part of it and not raised.
    """
    try:
        settings = folder.settings()
        origin = (datasets.data_dir, plugins)
        execute(settings, datasets.of(settings), folder, listener, datasets.warn, first_tasks, stop, origin)
    except Interrupted as error:
        return RunOutcome("stopped", str(error))
    except UserError as error:
        return RunOutcome("refused", str(error))
    except RunFailed as error:
        return RunOutcome("failed", str(error))
    return RunOutcome("finished")


def execute_order(order: WorkOrder, stop: Callable[[], bool], warn: Callable[[str], None]) -> RunOutcome:
    """Load the plugins of an order and execute its run."""
    plugins = [Path(plugin) for plugin in order.plugins]
    try:
        load_plugins(plugins)
    except UserError as error:
        return RunOutcome("refused", str(error))
    datasets = DatasetCache(Path(order.data_dir) if order.data_dir else None, warn)
    first_tasks = FirstTaskCache(Path(order.first_tasks))
    return execute_run(RunFolder(Path(order.folder)), datasets, first_tasks, Listener(), stop, plugins)


def stop_on_signals() -> Callable[[], bool]:
    """Handle interrupt and terminate signals. Return a function that tells whether one was received."""
    received: list[int] = []
    if threading.current_thread() is threading.main_thread():  # Python handles signals only in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: received.append(number))
    return lambda: bool(received)


def main(order: str) -> int:
    """Execute an order in JSON. Print warnings and the reason of a failure to stderr, one per line."""
    protect_streams()
    parent, stopped = os.getppid(), stop_on_signals()

    def warn(message: str) -> None:
        print(f"warning: {message}", file=sys.stderr, flush=True)

    outcome = execute_order(WorkOrder(**json.loads(order)), lambda: stopped() or os.getppid() != parent, warn)
    if outcome.message:
        print(f"error: {' '.join(outcome.message.split())}", file=sys.stderr)  # a single line for the parent process
    return EXIT_CODES[outcome.status]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
