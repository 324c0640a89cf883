"""Sweeps on Ray: the same results as on this machine, also after the loss of a worker."""

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import run_quietly, settings_for, without_timings
from cscct.errors import UserError
from cscct.runs.first_tasks import FirstTaskCache
from cscct.studies.datasets import DatasetCache
from cscct.studies.execution import ExecutionOptions
from cscct.studies.ray import RayExecutor, execute_on_node
from cscct.studies.scheduler import Scheduler, StudyStatus
from cscct.studies.worker import WorkOrder
from planning import QUICK, small_plan


def executor(folder: Path) -> RayExecutor:
    return RayExecutor(ExecutionOptions(jobs=2, ray=True), DatasetCache(None, print), FirstTaskCache(folder / "first"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayExecutor]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cscct[ray]'")
    with executor(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def worker_of(folder: Path) -> int | None:
    """Return the process that holds a run folder, once its first task is finished."""
    lock = folder / ".lock-holder"
    if not lock.is_file() or not (folder / "tasks" / "000.safetensors").is_file():
        return None
    return next((int(part) for part in lock.read_text().split() if part.isdigit()), None)


def test_a_sweep_that_loses_a_worker_ends_with_the_numbers_of_a_local_one(cluster: RayExecutor, tmp_path: Path) -> None:
    killed, warnings = list[int](), list[str]()
    plan = small_plan(tmp_path / "ray", "lucir", "lucir+cscct", sets=["train.epochs=4", "memory.per_class=30"])

    def watch(status: StudyStatus, changed: str | None) -> None:
        pid = worker_of(plan[1].folder.path) if not killed and status.states[plan[1].name] == "running" else None
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    status = Scheduler(plan, cluster, watch, warnings.append, lambda: False).run()
    assert killed
    assert killed[0] != os.getpid()
    assert set(status.states.values()) == {"finished"}, status
    assert status.attempts == {"lucir-seed1": 1, "lucir+cscct-seed1": 2}
    assert warnings == ["lucir-seed1: " + warnings[0].partition(": ")[2]]
    assert "The memory holds 30 exemplars per class" in warnings[0]
    for run in plan:
        sets = ("train.epochs=4", "memory.per_class=30")
        alone = run_quietly(tmp_path / "local" / run.name, run.settings.method, *QUICK, *sets)
        assert without_timings(run.folder.result()) == without_timings(alone)


def test_a_worker_that_is_cancelled_writes_a_checkpoint(cluster: RayExecutor, tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path / "ray", "lucir", sets=["train.epochs=10000", "checkpoint.minutes=60"])
    run.begin()
    handle = cluster.start(run)
    while not (run.folder.path / "metrics.jsonl").is_file():
        assert handle.outcome() is None
        time.sleep(0.05)
    handle.request_stop()
    handle.wait()
    outcome = handle.outcome()
    assert outcome.status == "stopped"
    assert any((run.folder.path / "checkpoints").glob("*.json"))


class FakeRay(SimpleNamespace):
    """A cluster with or without GPUs, which executes nothing."""

    def __init__(self, gpus: int):
        super().__init__(started=[], is_initialized=lambda: True, shutdown=lambda: None)
        self.cluster_resources = lambda: {"CPU": 4.0, "GPU": float(gpus)}

    def remote(self, **options: Any) -> Any:
        self.started.append(options)
        return lambda function: SimpleNamespace(remote=lambda order: (function, order))


@pytest.mark.parametrize(("gpus", "device", "wanted"), [(2, "auto", 1), (2, "cuda", 1), (2, "cpu", 0), (0, "auto", 0)])
def test_the_worker_chooses_the_device(
    gpus: int, device: str, wanted: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This machine has no GPU; nodes of the cluster may."""
    ray = FakeRay(gpus)
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray_executor = executor(tmp_path)
    (run,) = small_plan(tmp_path, "lucir", sets=[f"runtime.device={device}"])
    ray_executor.check(run.settings)
    run.begin()
    ray_executor.start(run)
    assert ray.started[0]["num_gpus"] == wanted
    assert run.folder.settings().runtime.device == device


def test_cuda_needs_a_cluster_with_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(0))
    with pytest.raises(UserError, match="cluster has no GPU"):
        executor(tmp_path).check(settings_for("lucir", "digits", "runtime.device=cuda"))


def test_a_missing_ray_gives_an_install_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'cscct\[ray\]'"):
        executor(tmp_path)


def test_a_failure_of_a_worker_has_a_message(tmp_path: Path) -> None:
    (run,) = small_plan(tmp_path, "lucir", sets=["loss.cross_entropy.weight=1e39"])
    run.begin()
    outcome = execute_on_node(WorkOrder(str(run.folder.path), str(tmp_path / "first")))
    assert outcome.status == "failed"
    assert "cross_entropy became" in outcome.message


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "localhost:{}", "127.0.0.1:9{}", "ray://", "ray://x"]
)
@pytest.mark.parametrize("source", ["option", "environment"])
def test_an_address_without_a_server_is_refused_before_ray_connects(
    form: str, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: pytest.fail("Ray would try for minutes"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    address = form.format(free_port())
    if source == "environment":
        monkeypatch.setenv("RAY_ADDRESS", address)
    options = ExecutionOptions(ray=True, ray_address=address if source == "option" else None)
    with pytest.raises(UserError, match=re.escape(repr(address))):
        RayExecutor(options, DatasetCache(None, print), FirstTaskCache(tmp_path))
