"""Runs on a Ray cluster, or on an embedded one. Its nodes see the same folders and have cscct installed.

A run is a task of Ray's, carried out in a worker process. Ray's own retries are off: a worker that dies is noticed
and started again by the same rules as a process of this machine, and goes on from its checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import RunFailed, UserError
from ..plugins import load_plugins
from ..runs.first_tasks import FirstTaskCache
from ..runs.folder import RunFolder
from ..runs.runner import execute
from .scheduler import DatasetCache, Job, Outcome, RunHandle, begin


class RayExecutor:
    def __init__(
        self,
        address: str | None,
        first_tasks: FirstTaskCache,
        data_dir: Path | None,
        plugins: Sequence[Path] = (),
        slots: int | None = None,
    ):
        try:
            import ray
        except ImportError as error:
            raise UserError("Sweeps on a Ray cluster need Ray: pip install 'cscct[ray]'.") from error
        self.ray, self.first_tasks, self.data_dir, self.plugins = ray, first_tasks, data_dir, plugins
        if not ray.is_initialized():
            try:
                ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError) as error:
                raise UserError(f"There is no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error
        self.slots = slots or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.has_gpus = ray.cluster_resources().get("GPU", 0) > 0

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def start(self, job: Job) -> RunHandle:
        begin(job)
        gpus = 1 if self.has_gpus and job.settings.runtime.device == "cuda" else 0
        remote = self.ray.remote(num_cpus=max(1, job.settings.runtime.threads), num_gpus=gpus, max_retries=0)(carry_out)
        paths = [str(one.resolve()) for one in self.plugins]
        data = str(self.data_dir.resolve()) if self.data_dir else None
        folders = str(job.folder.path.resolve()), str(self.first_tasks.folder.resolve())
        return _Task(self.ray, remote.remote(*folders, data, paths))


class _Task:
    def __init__(self, ray: Any, reference: Any):
        self.ray, self.reference = ray, reference

    def ended(self) -> Outcome | None:
        done, _ = self.ray.wait([self.reference], timeout=0)
        if not done:
            return None
        try:
            failure = self.ray.get(self.reference)
        except self.ray.exceptions.RayError as error:
            return Outcome("died", str(error).strip().splitlines()[0])
        return Outcome("failed", failure) if failure else Outcome("finished")

    def ask_to_stop(self) -> None:
        self.ray.cancel(self.reference, force=False)

    def wait(self) -> None:
        self.ray.wait([self.reference], timeout=60)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


def carry_out(folder: str, first_tasks: str, data_dir: str | None, plugins: Sequence[str]) -> str:
    """In a worker: one run, or what is left of it. The sentence of a failure, or nothing."""
    load_plugins([Path(one) for one in plugins])
    run, warnings = RunFolder(Path(folder)), list[str]()
    try:
        settings = run.settings()
        datasets = DatasetCache(Path(data_dir) if data_dir else None, warnings.append)
        if run.state(settings) != "finished":
            shared = FirstTaskCache(Path(first_tasks))
            execute(settings, datasets.of(settings), run, None, warnings.append, shared)
    except (RunFailed, UserError) as failure:
        return str(failure)
    return ""
