"""Many runs at a time: retries, failures, shared first tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import run_quietly, settings_for, signal_plugin, without_timings
from cscct.errors import Interrupted
from cscct.runs.many import Datasets, End, Job, Ledger, Processes, run_elsewhere
from cscct.runs.store import FirstTasks, RunFolder

QUICK = ("train.epochs=1", "data.train_per_class=20", "runtime.threads=1", "checkpoint.minutes=0")


def jobs(folder: Path, *methods: str, sets: Sequence[str] = (), seeds: Sequence[int] = (1,)) -> list[Job]:
    datasets = Datasets(None, print)
    return [
        datasets.job(
            settings_for(method, "digits", *QUICK, *sets, f"seed={seed}"), RunFolder(folder / f"{method}-{seed}")
        )
        for method in methods
        for seed in seeds
    ]


class Script:
    """A place where runs go as they are told to: each `start` takes the next ending of that run."""

    def __init__(self, slots: int, endings: dict[str, list[str]], first_tasks: FirstTasks):
        self.slots, self.endings, self.first_tasks = slots, endings, first_tasks
        self.started: list[str] = []
        self.most = 0
        self.running = 0
        self.stopped: list[str] = []

    def start(self, job: Job) -> Acted:
        self.started.append(job.name)
        self.running += 1
        self.most = max(self.most, self.running)
        return Acted(self, job, self.endings.get(job.name, ["finished"]).pop(0))


class Acted:
    def __init__(self, place: Script, job: Job, how: str):
        self.place, self.job, self.how, self.polls = place, job, how, 0

    def ended(self) -> End | None:
        self.polls += 1
        if self.polls < 3:
            return None
        self.place.running -= 1
        return End(self.how, "as told")  # type: ignore[arg-type]

    def ask_to_stop(self) -> None:
        self.place.stopped.append(self.job.name)

    def wait(self) -> None: ...

    def kill(self) -> None: ...


def ignore(ledger: Ledger, changed: str | None) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cscct.runs.many.POLL_SECONDS", 0.01)


def test_what_dies_is_taken_up_again_and_what_fails_is_not(tmp_path: Path) -> None:
    first = FirstTasks(tmp_path / "first")
    plan = jobs(tmp_path, "lucir", "icarl", "podnet", "replay", seeds=(1,))
    place = Script(
        4,
        {"lucir-1": ["died", "died", "finished"], "icarl-1": ["failed"], "podnet-1": ["died", "died", "died", "died"]},
        first,
    )
    ledger = run_elsewhere(plan, place, first, ignore, lambda: False, retries=2)
    assert ledger.states == {"lucir-1": "finished", "icarl-1": "failed", "podnet-1": "failed", "replay-1": "finished"}
    assert ledger.attempts == {"lucir-1": 3, "icarl-1": 1, "podnet-1": 3, "replay-1": 1}
    assert ledger.failures() == ["icarl-1: as told", "podnet-1: as told"]


def test_no_more_at_a_time_than_there_are_slots(tmp_path: Path) -> None:
    first = FirstTasks(tmp_path / "first")
    place = Script(2, {}, first)
    run_elsewhere(jobs(tmp_path, "lucir", "podnet", seeds=(1, 2, 3)), place, first, ignore, lambda: False)
    assert place.most == 2
    assert len(place.started) == 6


def test_a_run_waits_for_the_first_task_that_it_can_share(tmp_path: Path) -> None:
    first = FirstTasks(tmp_path / "first")
    place = Script(4, {}, first)
    plan = jobs(tmp_path, "lucir", "lucir+cscct", "podnet")
    assert plan[0].first_task == plan[1].first_task != plan[2].first_task
    run_elsewhere(plan, place, first, ignore, lambda: False)
    assert place.started == ["lucir-1", "podnet-1", "lucir+cscct-1"]


def test_a_stop_is_passed_on(tmp_path: Path) -> None:
    first = FirstTasks(tmp_path / "first")
    place = Script(2, {}, first)
    with pytest.raises(Interrupted, match="same command goes on"):
        run_elsewhere(jobs(tmp_path, "lucir", "podnet", "replay"), place, first, ignore, lambda: len(place.started) > 1)
    assert place.stopped == ["lucir-1", "podnet-1"]


def test_processes_with_one_killed_and_one_that_fails(tmp_path: Path) -> None:
    first = FirstTasks(tmp_path / "first")
    good = jobs(tmp_path / "many", "lucir", "lucir+cscct")
    bad = jobs(tmp_path / "many", "podnet", sets=["loss.nca.weight=1e39"])
    plugin = signal_plugin(tmp_path / "kill.py", *(job.name for job in good), after=2)  # the first that comes so far
    ledger = run_elsewhere([*bad, *good], Processes(2, first, ["--plugin", str(plugin)]), first, ignore, lambda: False)
    assert plugin.with_suffix(".mark").exists()
    assert ledger.states == {"podnet-1": "failed", "lucir-1": "finished", "lucir+cscct-1": "finished"}
    assert "became" in ledger.words["podnet-1"]
    assert sum(ledger.attempts.values()) == 4
    for job in good:
        alone = run_quietly(tmp_path / "alone" / job.settings.method, job.settings.method, *QUICK)
        assert without_timings(job.folder.result()) == without_timings(alone)
    again = run_elsewhere(good, Script(1, {}, first), first, ignore, lambda: False)
    assert again.attempts == {}
