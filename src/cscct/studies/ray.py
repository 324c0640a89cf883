"""Runs on a Ray cluster, or on an embedded one. Its nodes see the same folders and have cscct installed.

A run is a task of Ray's, carried out in a worker process, which chooses the device. Ray's own retries are off: a worker
that dies is noticed and started again by the same rules as a process of this machine, and goes on from its checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from ..config import Settings
from ..errors import UserError
from ..runs.first_tasks import FirstTaskCache
from .datasets import DatasetCache
from .execution import ExecutionOptions
from .plan import PlannedRun
from .scheduler import RunHandle
from .worker import Outcome, WorkOrder, stop_on_signals, work

STOP_SECONDS = 60.0  # in which a run that is asked to stop has to write its checkpoint
CONNECT_SECONDS = 3.0  # in which the head of a cluster has to answer


class RayExecutor:
    """Runs as tasks of a Ray cluster. A context: leaving it ends the connection."""

    def __init__(self, options: ExecutionOptions, datasets: DatasetCache, first_tasks: FirstTaskCache):
        try:
            import ray
        except ImportError as error:
            raise UserError("Sweeps on a Ray cluster need Ray: pip install 'cscct[ray]'.") from error
        self.ray, self.options, self.datasets, self.first_tasks = ray, options, datasets, first_tasks
        address = options.ray_address or os.environ.get("RAY_ADDRESS")
        if not ray.is_initialized():
            _check_reachable(address)
            try:
                ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(f"There is no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error
        self.slots = options.jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.has_gpus = ray.cluster_resources().get("GPU", 0) > 0

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def check(self, settings: Settings) -> None:
        if settings.runtime.device == "cuda" and not self.has_gpus:
            raise UserError("The Ray cluster has no GPU: use --device auto or cpu.")
        self.datasets.check(settings)

    def gpus(self, settings: Settings) -> int:
        """GPUs that a run gets: Ray hides the others, so `auto` finds one only if it has been asked for here."""
        return int(self.has_gpus and settings.runtime.device in ("auto", "cuda"))

    def start(self, run: PlannedRun) -> RunHandle:
        runtime, data = run.settings.runtime, self.datasets.data_dir
        order = WorkOrder(
            str(run.folder.path.resolve()),
            str(self.first_tasks.folder.resolve()),
            str(data.resolve()) if data else None,
            tuple(str(one.resolve()) for one in self.options.plugins),
        )
        remote = self.ray.remote(num_cpus=max(1, runtime.threads), num_gpus=self.gpus(run.settings), max_retries=0)
        return _Task(self.ray, remote(work_on_node).remote(order))


def _check_reachable(address: str | None) -> None:
    """Refuses an address HOST:PORT where nobody listens: Ray itself would try for minutes before it says so."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if address and address.startswith("ray://") and not (host and port.isdecimal()):
        raise UserError(f"{address!r} is not the address of a Ray cluster: give ray://HOST:PORT.")
    if not host or not port.isdecimal():  # none, `auto` or `local`; what is none of these, Ray refuses at once
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(
            f"There is no Ray cluster at {address!r} ({error}). Give the HOST:PORT that `ray start --head` shows, or "
            "leave out --ray-address and RAY_ADDRESS for a cluster on this machine alone."
        ) from error


class _Task:
    def __init__(self, ray: Any, reference: Any):
        self.ray, self.reference = ray, reference

    def ended(self) -> Outcome | None:
        done, _ = self.ray.wait([self.reference], timeout=0)
        if not done:
            return None
        try:
            outcome: Outcome = self.ray.get(self.reference)
        except self.ray.exceptions.TaskCancelledError:  # before it had begun: nothing is lost
            return Outcome("stopped", "It had not begun.")
        except self.ray.exceptions.RayError as error:
            return Outcome("died", str(error).strip().splitlines()[0])
        return outcome

    def ask_to_stop(self) -> None:
        """Ray interrupts the worker, which hears it as a request to stop."""
        self.ray.cancel(self.reference, force=False)

    def wait(self) -> None:
        self.ray.wait([self.reference], timeout=STOP_SECONDS)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


def work_on_node(order: WorkOrder) -> Outcome:
    """In a worker: one run, or what is left of it, with the warnings it gave."""
    warnings: list[str] = []
    outcome = work(order, stop_on_signals(), warnings.append)
    return outcome._replace(warnings=tuple(warnings))
