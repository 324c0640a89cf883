"""The scheduler: retries, failures, shared first tasks, runs that another process holds."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cscct
from cscct.errors import Interrupted, RunFailed, UserError
from cscct.storage import locked
from cscct.studies.plan import PlannedRun
from cscct.studies.scheduler import Executor, Scheduler, StudyStatus
from cscct.studies.worker import RunOutcome
from paper_results import result
from planning import small_plan

POLLS = 9  # calls of `outcome` until a run ends


class ScriptedExecutor:
    """An executor with scripted outcomes: each `start` takes the next outcome of that run."""

    def __init__(self, slots: int, outcomes: dict[str, list[RunOutcome]] | None = None):
        self.slots, self.outcomes = slots, outcomes or {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.most = self.running = 0

    def check(self, settings: object) -> None: ...

    def start(self, run: PlannedRun) -> "ScriptedRun":
        self.started.append(run.name)
        self.running += 1
        self.most = max(self.most, self.running)
        return ScriptedRun(self, run, self.outcomes.get(run.name, [RunOutcome("finished")]).pop(0))


class ScriptedRun:
    def __init__(self, executor: ScriptedExecutor, run: PlannedRun, last: RunOutcome):
        self.executor, self.run, self.last, self.polls = executor, run, last, 0

    def outcome(self) -> RunOutcome | None:
        self.polls += 1
        if self.polls < POLLS:
            return None
        self.executor.running -= 1
        return self.last

    def request_stop(self) -> None:
        self.executor.stopped.append(self.run.name)
        self.polls = POLLS

    def wait(self) -> None: ...

    def kill(self) -> None: ...


def ignore(status: StudyStatus, changed: str | None) -> None: ...


def schedule(
    plan: list[PlannedRun],
    executor: Executor,
    *,
    watch: Callable[[StudyStatus, str | None], None] = ignore,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = print,
) -> StudyStatus:
    return Scheduler(plan, executor, watch, warn, stop).run()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cscct.studies.scheduler.POLL_SECONDS", 0.005)


def test_runs_that_die_are_restarted_and_runs_that_fail_are_not(tmp_path: Path) -> None:
    died, failed = RunOutcome("died", "out of memory"), RunOutcome("failed", "out of memory")
    outcomes = {
        "lucir-seed1": [died, died, RunOutcome("finished")],
        "icarl-seed1": [failed],
        "podnet-seed1": [died, died, died, died],
    }
    status = schedule(small_plan(tmp_path, "lucir", "icarl", "podnet", "replay"), ScriptedExecutor(4, outcomes))
    assert status.states == {
        "lucir-seed1": "finished",
        "icarl-seed1": "failed",
        "podnet-seed1": "failed",
        "replay-seed1": "finished",
    }
    assert status.attempts == {"lucir-seed1": 3, "icarl-seed1": 1, "podnet-seed1": 3, "replay-seed1": 1}
    assert status.failures() == ["icarl-seed1: out of memory", "podnet-seed1: out of memory"]
    with pytest.raises(RunFailed, match=r"2 of 4 runs failed. out of memory"):
        status.raise_for_failures()


def test_a_user_error_of_all_runs_is_a_user_error_of_the_study(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    refused = {run.name: [RunOutcome("refused", "The data is not there.")] for run in plan}
    with pytest.raises(UserError, match=r"2 of 2 runs failed. The data is not there.$"):
        schedule(plan, ScriptedExecutor(1, refused)).raise_for_failures()


def test_a_run_waits_for_the_first_task_that_it_can_share(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "lucir+cscct", "podnet")
    assert plan[0].first_task == plan[1].first_task != plan[2].first_task
    executor = ScriptedExecutor(4)
    schedule(plan, executor)
    assert executor.started == ["lucir-seed1", "podnet-seed1", "lucir+cscct-seed1"]


def test_a_finished_first_task_delays_no_run(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "lucir+cscct", "icarl")
    plan[0].begin()
    plan[0].folder.write_result({**result(plan[0], 50.0, 1), "status": "running", "task_sizes": [9] * 4})
    executor = ScriptedExecutor(4)
    schedule(plan, executor)
    assert executor.most == 3


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 20000,
    f"cscct_version: {cscct.__version__}".encode(),
    b"cscct_version: [1]",
]


@pytest.mark.parametrize("name", ["config.yaml", "result.json"])
@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_run_does_not_stop_the_others(name: str, content: bytes, tmp_path: Path) -> None:
    small_plan(tmp_path, "lucir", "podnet")[0].begin()
    (tmp_path / "lucir-seed1" / name).write_bytes(content)
    plan = small_plan(tmp_path, "lucir", "podnet")
    executor, changes = ScriptedExecutor(2), list[str | None]()
    status = schedule(plan, executor, watch=lambda _, changed: changes.append(changed))
    assert executor.started == ["podnet-seed1"]
    assert status.states == {"lucir-seed1": "failed", "podnet-seed1": "finished"}
    assert "lucir-seed1" in changes
    with pytest.raises(UserError, match=f"1 of 2 runs failed.*lucir-seed1/{name}"):
        status.raise_for_failures()


def test_a_truncated_config_is_damaged_and_not_another_run(tmp_path: Path) -> None:
    small_plan(tmp_path, "lucir")[0].begin()
    path = tmp_path / "lucir-seed1" / "config.yaml"
    whole = path.read_bytes()
    for size in range(0, len(whole) - 3, 37):
        path.write_bytes(whole[:size])
        (run,) = small_plan(tmp_path, "lucir")
        assert "config.yaml" in (run.damage() or "")


def test_a_stop_is_forwarded_to_all_runs(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet", "replay")
    executor = ScriptedExecutor(2, {run.name: [RunOutcome("stopped")] for run in plan})
    with pytest.raises(Interrupted, match=r"^Stopped after checkpoints\. Run the same command with --out "):
        schedule(plan, executor, stop=lambda: len(executor.started) > 1)
    assert executor.stopped == ["lucir-seed1", "podnet-seed1"]


def test_a_stop_reports_runs_without_a_checkpoint(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    outcomes = {"lucir-seed1": [RunOutcome("died", "cancelled")], "podnet-seed1": [RunOutcome("stopped")]}
    executor = ScriptedExecutor(2, outcomes)
    with pytest.raises(Interrupted, match="1 of 2 runs did not write a checkpoint"):
        schedule(plan, executor, stop=lambda: len(executor.started) > 1)


def test_equal_warnings_of_runs_are_forwarded_once(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    messages: list[str] = []
    outcomes = {run.name: [RunOutcome("finished", "", ("The memory is large.",))] for run in plan}
    schedule(plan, ScriptedExecutor(2, outcomes), warn=messages.append)
    assert messages == ["lucir-seed1: The memory is large."]


def test_a_run_in_use_by_another_process_is_held(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    plan[0].begin()
    executor, held = ScriptedExecutor(2), list[str]()
    hold = locked(plan[0].folder.path)
    hold.__enter__()

    def watch(status: StudyStatus, changed: str | None) -> None:
        if changed == plan[0].name and status.states[changed] == "held":
            held.append(status.messages[changed])
        if held and status.states["podnet-seed1"] == "finished" and (plan[0].folder.path / ".lock").exists():
            plan[0].folder.write_result(result(plan[0], 50.0))
            hold.__exit__(None, None, None)

    status = schedule(plan, executor, watch=watch)
    assert len(held) == 1
    assert "is in use by process" in held[0]
    assert executor.started == ["podnet-seed1"]  # the other process finished the first run
    assert set(status.states.values()) == {"finished"}


def test_a_lock_that_is_a_link_does_not_hold_a_run(tmp_path: Path) -> None:
    """The run reports the error."""
    plan = small_plan(tmp_path, "lucir")
    plan[0].begin()
    (tmp_path / "outside").touch()
    (plan[0].folder.path / ".lock").unlink(missing_ok=True)
    (plan[0].folder.path / ".lock").symlink_to(tmp_path / "outside")
    executor = ScriptedExecutor(1)
    schedule(plan, executor)
    assert executor.started == ["lucir-seed1"]
