"""Sweeps on Ray: the same numbers as on this machine, whatever happens to a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import without_timings
from cscct.errors import UserError
from cscct.runs.first_tasks import FirstTaskCache
from cscct.studies.processes import ProcessExecutor
from cscct.studies.ray import RayExecutor, carry_out
from cscct.studies.scheduler import StudyStatus, run_study
from studies.test_scheduler import jobs


def worker_of(folder: Path) -> int | None:
    """Who holds a run's folder, once it has come as far as its second task."""
    lock = folder / ".lock"
    if not lock.is_file() or not (folder / "tasks" / "000.safetensors").is_file():
        return None
    words = lock.read_text().split()
    return next((int(word) for word in words if word.isdigit()), None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RayExecutor]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cscct[ray]'")
    with RayExecutor(None, FirstTaskCache(tmp_path / "ray-first"), None, slots=2) as found:
        yield found


def test_a_sweep_that_loses_a_worker_ends_with_the_numbers_of_a_local_one(cluster: RayExecutor, tmp_path: Path) -> None:
    killed: list[int] = []
    victim = tmp_path / "ray" / "lucir+cscct-1"

    def watch(status: StudyStatus, changed: str | None) -> None:
        pid = worker_of(victim) if not killed and status.states["lucir+cscct-1"] == "running" else None
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    more = ["train.epochs=4"]
    there = jobs(tmp_path / "ray", "lucir", "lucir+cscct", sets=more)
    status = run_study(there, cluster, cluster.first_tasks, watch, lambda: False)
    assert killed
    assert killed[0] != os.getpid()
    assert set(status.states.values()) == {"finished"}, status
    assert status.attempts == {"lucir-1": 1, "lucir+cscct-1": 2}

    first = FirstTaskCache(tmp_path / "local-first")
    here = jobs(tmp_path / "local", "lucir", "lucir+cscct", sets=more)
    run_study(here, ProcessExecutor(1, first), first, lambda *_: None, lambda: False)
    for one, other in zip(there, here, strict=True):
        assert without_timings(one.folder.result()) == without_timings(other.folder.result())


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'cscct\[ray\]'"):
        RayExecutor(None, FirstTaskCache(tmp_path), None)


def test_a_workers_failure_is_a_sentence(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, "lucir", sets=["loss.cross_entropy.weight=1e39"])
    job.folder.create(job.settings)
    assert "cross_entropy became" in carry_out(str(job.folder.path), str(tmp_path / "first"), None, [])
