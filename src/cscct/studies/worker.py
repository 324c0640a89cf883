"""One run of a study, wherever it is carried out: in this process, in one of its own, or on a cluster.

As a program (`python -m cscct.studies.worker ORDER`) it is what `ProcessExecutor` starts. It stops with a checkpoint
when it is asked to, and when the process that started it is no longer there.
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


class Outcome(NamedTuple):
    """How a run ended. One that died may be started again; one that failed or was refused would do so again."""

    how: Literal["finished", "failed", "refused", "stopped", "died"]
    words: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkOrder:
    """What a worker in another process has to know; the settings are in the folder's config.yaml."""

    folder: str
    first_tasks: str
    data_dir: str | None = None
    plugins: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def carry_out_run(
    folder: RunFolder,
    datasets: DatasetCache,
    first_tasks: FirstTaskCache,
    listener: Listener,
    stop: Callable[[], bool],
    plugins: Sequence[Path] = (),
) -> Outcome:
    """The run whose settings are in the folder, or what is left of it."""
    try:
        settings = folder.settings()
        origin = (datasets.data_dir, plugins)
        execute(settings, datasets.of(settings), folder, listener, datasets.warn, first_tasks, stop, origin)
    except Interrupted as interruption:
        return Outcome("stopped", str(interruption))
    except UserError as mistake:
        return Outcome("refused", str(mistake))
    except RunFailed as failure:
        return Outcome("failed", str(failure))
    return Outcome("finished")


def work(order: WorkOrder, stop: Callable[[], bool], warn: Callable[[str], None]) -> Outcome:
    """Carries out an order in a process that has nothing else to do."""
    plugins = [Path(one) for one in order.plugins]
    try:
        load_plugins(plugins)
    except UserError as mistake:
        return Outcome("refused", str(mistake))
    datasets = DatasetCache(Path(order.data_dir) if order.data_dir else None, warn)
    first_tasks = FirstTaskCache(Path(order.first_tasks))
    return carry_out_run(RunFolder(Path(order.folder)), datasets, first_tasks, Listener(), stop, plugins)


def stop_on_signals() -> Callable[[], bool]:
    """Interrupt and terminate signals become a request to stop, which the function returned tells."""
    asked: list[int] = []
    if threading.current_thread() is threading.main_thread():  # only there Python lets signals be handled
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: asked.append(number))
    return lambda: bool(asked)


def main(order: str) -> int:
    """Warnings and the reason of a failure go to the error stream, a line each."""
    protect_streams()
    parent, asked = os.getppid(), stop_on_signals()

    def warn(sentence: str) -> None:
        print(f"warning: {sentence}", file=sys.stderr, flush=True)

    outcome = work(WorkOrder(**json.loads(order)), lambda: asked() or os.getppid() != parent, warn)
    if outcome.words:
        print(f"error: {' '.join(outcome.words.split())}", file=sys.stderr)  # one line, which the parent reads
    return EXIT_CODES[outcome.how]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
