"""Executor on a Ray cluster, remote or local. Its nodes share the folders and have cscct installed.

A run is a Ray task in a worker process, which chooses the device. Ray's retries are off: the scheduler restarts a
worker that dies in the same way as a process of this machine, and the run continues from its checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from ..config import Settings
from ..errors import UserError, install_hint
from ..runs.first_tasks import FirstTaskCache
from .datasets import DatasetCache
from .execution import ExecutionOptions
from .plan import PlannedRun
from .scheduler import RunHandle
from .worker import RunOutcome, WorkOrder, execute_order, stop_on_signals

STOP_SECONDS = 60.0  # time for the checkpoint of a run that is stopped
CONNECT_SECONDS = 3.0  # time for the head of a cluster to answer


class RayExecutor:
    """Executes runs as tasks of a Ray cluster. A context manager that closes the connection."""

    def __init__(self, options: ExecutionOptions, datasets: DatasetCache, first_tasks: FirstTaskCache):
        try:
            import ray
        except ImportError as error:
            raise UserError(f"Sweeps on a Ray cluster need Ray: {install_hint('ray')}.") from error
        self.ray, self.options, self.datasets, self.first_tasks = ray, options, datasets, first_tasks
        address = options.ray_address or os.environ.get("RAY_ADDRESS")
        if not ray.is_initialized():
            _check_reachable(address)
            try:
                ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(f"No Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error
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
        """Return the GPUs that a run requests. Ray hides all others, so `auto` needs the request too."""
        return int(self.has_gpus and settings.runtime.device in ("auto", "cuda"))

    def start(self, run: PlannedRun) -> RunHandle:
        runtime, data = run.settings.runtime, self.datasets.data_dir
        order = WorkOrder(
            str(run.folder.path.resolve()),
            str(self.first_tasks.folder.resolve()),
            str(data.resolve()) if data else None,
            tuple(str(plugin.resolve()) for plugin in self.options.plugins),
        )
        remote = self.ray.remote(num_cpus=max(1, runtime.threads), num_gpus=self.gpus(run.settings), max_retries=0)
        return _TaskHandle(self.ray, remote(execute_on_node).remote(order))


def _check_reachable(address: str | None) -> None:
    """Raise a `UserError` if no server listens at HOST:PORT. Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if address and address.startswith("ray://") and not (host and port.isdecimal()):
        raise UserError(f"{address!r} is not the address of a Ray cluster: use ray://HOST:PORT.")
    if not host or not port.isdecimal():  # empty, `auto` or `local`; Ray rejects anything else immediately
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(
            f"No Ray cluster at {address!r} ({error}). Use the HOST:PORT that `ray start --head` prints, or omit "
            "--ray-address and RAY_ADDRESS to use this machine only."
        ) from error


class _TaskHandle:
    """Handle of a run in a Ray task."""

    def __init__(self, ray: Any, reference: Any):
        self.ray, self.reference = ray, reference

    def outcome(self) -> RunOutcome | None:
        done, _ = self.ray.wait([self.reference], timeout=0)
        if not done:
            return None
        try:
            outcome: RunOutcome = self.ray.get(self.reference)
        except self.ray.exceptions.TaskCancelledError:  # before it started: nothing is lost
            return RunOutcome("stopped", "The run had not started.")
        except self.ray.exceptions.RayError as error:
            return RunOutcome("died", str(error).strip().splitlines()[0])
        return outcome

    def request_stop(self) -> None:
        """Let Ray interrupt the worker, which then writes a checkpoint."""
        self.ray.cancel(self.reference, force=False)

    def wait(self) -> None:
        self.ray.wait([self.reference], timeout=STOP_SECONDS)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


def execute_on_node(order: WorkOrder) -> RunOutcome:
    """Execute an order in a Ray worker. The outcome contains the warnings."""
    warnings: list[str] = []
    outcome = execute_order(order, stop_on_signals(), warnings.append)
    return outcome._replace(warnings=tuple(warnings))
