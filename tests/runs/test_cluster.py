"""Sweeps on Ray: the same numbers as on this machine, whatever happens to a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import run_quietly, signal_plugin, without_timings
from cscct.errors import UserError
from cscct.runs.cluster import Cluster, carry_out
from cscct.runs.many import run_elsewhere
from cscct.runs.store import FirstTasks
from runs.test_many import QUICK, jobs


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """With workers one of which dies in the second task of a run."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cscct[ray]'")
    plugin = signal_plugin(tmp_path / "kill.py", "lucir+cscct-1", after=2)  # the first task is another run's
    with Cluster(None, FirstTasks(tmp_path / "ray-first"), None, [plugin], slots=2) as found:
        yield found


def test_a_sweep_that_loses_a_worker_ends_with_the_numbers_of_a_local_one(cluster: Cluster, tmp_path: Path) -> None:
    there = jobs(tmp_path / "ray", "lucir", "lucir+cscct")
    ledger = run_elsewhere(there, cluster, cluster.first_tasks, lambda *_: None, lambda: False)
    assert (tmp_path / "kill.mark").exists()
    assert (there[1].folder.path / "tasks" / "000.safetensors").is_file()
    assert set(ledger.states.values()) == {"finished"}, ledger
    assert ledger.attempts == {"lucir-1": 1, "lucir+cscct-1": 2}

    for job in there:
        here = run_quietly(tmp_path / "local" / job.name, job.settings.method, *QUICK)
        assert without_timings(job.folder.result()) == without_timings(here)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'cscct\[ray\]'"):
        Cluster(None, FirstTasks(tmp_path), None)


def test_a_workers_failure_is_a_sentence(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, "lucir", sets=["loss.cross_entropy.weight=1e39"])
    job.folder.create(job.settings)
    assert "cross_entropy became" in carry_out(str(job.folder.path), str(tmp_path / "first"), None, [])
