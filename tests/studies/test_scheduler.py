"""Which run is started when: retries, failures, shared first tasks, runs that another process holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cscct.errors import Interrupted, RunFailed, UserError
from cscct.runs.files import locked
from cscct.studies.plan import PlannedRun
from cscct.studies.scheduler import Executor, Scheduler, StudyStatus
from cscct.studies.worker import Outcome
from exhibits import result
from planning import small_plan

POLLS = 9  # of a run before it ends


class Script:
    """An executor of runs that end as they are told to: each `start` takes the next ending of that run."""

    def __init__(self, slots: int, endings: dict[str, list[Outcome]] | None = None):
        self.slots, self.endings = slots, endings or {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.most = self.running = 0

    def check(self, settings: object) -> None: ...

    def start(self, run: PlannedRun) -> Acted:
        self.started.append(run.name)
        self.running += 1
        self.most = max(self.most, self.running)
        return Acted(self, run, self.endings.get(run.name, [Outcome("finished")]).pop(0))


class Acted:
    def __init__(self, place: Script, run: PlannedRun, outcome: Outcome):
        self.place, self.run, self.outcome, self.polls = place, run, outcome, 0

    def ended(self) -> Outcome | None:
        self.polls += 1
        if self.polls < POLLS:
            return None
        self.place.running -= 1
        return self.outcome

    def ask_to_stop(self) -> None:
        self.place.stopped.append(self.run.name)
        self.polls = POLLS

    def wait(self) -> None: ...

    def kill(self) -> None: ...


def ignore(status: StudyStatus, changed: str | None) -> None: ...


def schedule(
    plan: list[PlannedRun],
    place: Executor,
    *,
    watch: Callable[[StudyStatus, str | None], None] = ignore,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = print,
) -> StudyStatus:
    return Scheduler(plan, place, watch, warn, stop).run()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cscct.studies.scheduler.POLL_SECONDS", 0.005)


def test_what_dies_is_started_again_and_what_fails_is_not(tmp_path: Path) -> None:
    died, failed = Outcome("died", "as told"), Outcome("failed", "as told")
    endings = {
        "lucir-seed1": [died, died, Outcome("finished")],
        "icarl-seed1": [failed],
        "podnet-seed1": [died, died, died, died],
    }
    status = schedule(small_plan(tmp_path, "lucir", "icarl", "podnet", "replay"), Script(4, endings))
    assert status.states == {
        "lucir-seed1": "finished",
        "icarl-seed1": "failed",
        "podnet-seed1": "failed",
        "replay-seed1": "finished",
    }
    assert status.attempts == {"lucir-seed1": 3, "icarl-seed1": 1, "podnet-seed1": 3, "replay-seed1": 1}
    assert status.failures() == ["icarl-seed1: as told", "podnet-seed1: as told"]
    with pytest.raises(RunFailed, match=r"2 of 4 runs failed. as told"):
        status.raise_for_failures()


def test_a_mistake_stays_a_mistake(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    refused = {run.name: [Outcome("refused", "The data is not there.")] for run in plan}
    with pytest.raises(UserError, match=r"2 of 2 runs failed. The data is not there.$"):
        schedule(plan, Script(1, refused)).raise_for_failures()


def test_no_more_at_a_time_than_there_are_slots(tmp_path: Path) -> None:
    place = Script(2)
    schedule(small_plan(tmp_path, "lucir", "podnet", seeds=(1, 2, 3)), place)
    assert place.most == 2
    assert len(place.started) == 6


def test_a_run_waits_for_the_first_task_that_it_can_share(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "lucir+cscct", "podnet")
    assert plan[0].first_task == plan[1].first_task != plan[2].first_task
    place = Script(4)
    schedule(plan, place)
    assert place.started == ["lucir-seed1", "podnet-seed1", "lucir+cscct-seed1"]


def test_a_first_task_that_is_done_is_not_waited_for(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "lucir+cscct", "icarl")
    plan[0].begin()
    plan[0].folder.write_result({**result(plan[0], 50.0, 1), "status": "running", "task_sizes": [9] * 4})
    place = Script(4)
    schedule(plan, place)
    assert place.most == 3


DAMAGED = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 20000, b"cscct_version: 0.3.0", b"cscct_version: [1]"]


@pytest.mark.parametrize("name", ["config.yaml", "result.json"])
@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_run_fails_alone(name: str, content: bytes, tmp_path: Path) -> None:
    small_plan(tmp_path, "lucir", "podnet")[0].begin()
    (tmp_path / "lucir-seed1" / name).write_bytes(content)
    plan = small_plan(tmp_path, "lucir", "podnet")
    place, changes = Script(2), list[str | None]()
    status = schedule(plan, place, watch=lambda _, changed: changes.append(changed))
    assert place.started == ["podnet-seed1"]
    assert status.states == {"lucir-seed1": "failed", "podnet-seed1": "finished"}
    assert "lucir-seed1" in changes  # it is shown
    with pytest.raises(UserError, match=f"1 of 2 runs failed.*lucir-seed1/{name}"):
        status.raise_for_failures()


def test_a_config_cut_short_is_damaged_and_not_another_run(tmp_path: Path) -> None:
    small_plan(tmp_path, "lucir")[0].begin()
    path = tmp_path / "lucir-seed1" / "config.yaml"
    whole = path.read_bytes()
    for size in range(0, len(whole) - 3, 37):
        path.write_bytes(whole[:size])
        (run,) = small_plan(tmp_path, "lucir")
        assert "config.yaml" in (run.damage() or "")


def test_a_stop_is_passed_on(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet", "replay")
    place = Script(2, {run.name: [Outcome("stopped")] for run in plan})
    with pytest.raises(Interrupted, match=r"^Stopped after checkpoints. The same command with --out .* goes on"):
        schedule(plan, place, stop=lambda: len(place.started) > 1)
    assert place.stopped == ["lucir-seed1", "podnet-seed1"]


def test_a_stop_without_checkpoints_is_not_told_as_one_with_them(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    place = Script(2, {"lucir-seed1": [Outcome("died", "cancelled")], "podnet-seed1": [Outcome("stopped")]})
    with pytest.raises(Interrupted, match="1 of 2 runs did not write a checkpoint"):
        schedule(plan, place, stop=lambda: len(place.started) > 1)


def test_warnings_of_runs_are_passed_on_once(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    heard: list[str] = []
    endings = {run.name: [Outcome("finished", "", ("The memory is large.",))] for run in plan}
    schedule(plan, Script(2, endings), warn=heard.append)
    assert heard == ["lucir-seed1: The memory is large."]


def test_a_run_that_another_process_works_on_is_waited_for(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    plan[0].begin()
    place, held = Script(2), list[str]()
    hold = locked(plan[0].folder.path)
    hold.__enter__()

    def watch(status: StudyStatus, changed: str | None) -> None:
        if changed == plan[0].name and status.states[changed] == "held":
            held.append(status.words[changed])
        if held and status.states["podnet-seed1"] == "finished" and (plan[0].folder.path / ".lock").exists():
            plan[0].folder.write_result(result(plan[0], 50.0))
            hold.__exit__(None, None, None)

    status = schedule(plan, place, watch=watch)
    assert len(held) == 1
    assert "is being worked on by process" in held[0]
    assert place.started == ["podnet-seed1"]  # the other process has done it all
    assert set(status.states.values()) == {"finished"}


def test_a_lock_that_is_a_link_is_not_waited_for(tmp_path: Path) -> None:
    """The run itself says what is wrong."""
    plan = small_plan(tmp_path, "lucir")
    plan[0].begin()
    (tmp_path / "outside").touch()
    (plan[0].folder.path / ".lock").unlink(missing_ok=True)
    (plan[0].folder.path / ".lock").symlink_to(tmp_path / "outside")
    place = Script(1)
    schedule(plan, place)
    assert place.started == ["lucir-seed1"]
