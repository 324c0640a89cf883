"""Tuning: search space, values after each task, pruning, and studies that are killed and continued."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cscct
from conftest import run_command, signal_plugin
from cscct.errors import RunFailed, UserError
from cscct.studies import trials as trials_module
from cscct.studies.space import parse_option, search_space
from cscct.studies.trials import TrialScheduler, below_median, running_values
from cscct.studies.tuning import Tuning
from cscct.yamltext import parse_override

SMALL = {"train.epochs": 1, "data.train_per_class": 12, "data.classes": 4, "B": 2, "C": 1, "runtime.threads": 1}
VALID = {**SMALL, "data.validation": 0.25}
SETS = [word for key, value in VALID.items() if len(key) > 1 for word in ("--set", f"{key}={value}")]
WORDS = ("tune", "lucir+cscct", "digits", "-B", "2", "-C", "1", *SETS)
WEIGHT = ("--over", "loss.csc.weight=0.1:30:log")


def tuning(folder: Path, over: dict[str, Any], *sets: str, method: str = "lucir+cscct", **more: Any) -> Tuning:
    overrides = [parse_override(text) for text in ("data.validation=0.25", *sets)]
    return Tuning(method, "digits", folder, over, (101,), overrides=overrides, **more)


def test_ranges_and_choices(tmp_path: Path) -> None:
    over = {
        "loss.csc.weight": "0.1:30:log",
        "loss.ct.weight": (1, 5),
        "train.epochs": "2:9",
        "loss.ct.form": "official,batchmean",
        "train.clip_grad_value": [None, 5.0],
        "data.transform.flip": "true,false",
    }
    spec = tuning(tmp_path / "out", over)
    csc, ct, epochs, form, clip, flip = spec.parameters
    assert (csc.low, csc.high, csc.log, csc.integer) == (0.1, 30, True, False)
    assert (ct.low, ct.high, ct.log, ct.integer) == (1, 5, False, False)
    assert epochs.integer
    assert (form.choices, clip.choices, flip.choices) == (("official", "batchmean"), (None, 5.0), (True, False))
    assert not (tmp_path / "out").exists()
    for parameter in spec.parameters:
        distribution = parameter.distribution()
        inside = parameter.choices[0] if parameter.choices else parameter.low
        assert distribution._contains(distribution.to_internal_repr(inside))
    assert spec.settings({"train.epochs": 3, "loss.ct.form": "batchmean"}, 7).seed == 7
    assert spec.settings({}).data.order == "seed"


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({}, ("No setting",)),
        ({"loss.csc.weight": "30:0.1"}, ("smaller", "0.1:30")),
        ({"loss.csc.weight": "0:3:log"}, ("positive",)),
        ({"loss.csc.weight": "1:2:ln"}, ("not a range", "LOW:HIGH:log")),
        ({"loss.csc.weight": "1:b"}, ("not a range",)),
        ({"loss.csc.weight": "1:1e999"}, ("finite",)),
        ({"loss.csc.weight": "3"}, ("two different values",)),
        ({"loss.ct.form": "official,official"}, ("two different values",)),
        ({"loss.ct.form": "official,"}, ("missing",)),
        ({"loss.ct.form": "official,bachmean"}, ("loss.ct.form", "batchmean")),
        ({"loss.csc.wieght": "1:2"}, ("loss.csc.wieght", "loss.csc.weight")),
        ({"loss.balanced_cross_entropy.weight": "1:2"}, ("balanced",)),
        ({"train.epochs": "0:5"}, ("train.epochs",)),
        ({"train.epochs": "1.5:5"}, ("train.epochs",)),
        ({"data.validation": "0.1:0.2"}, ("cannot be tuned", "--set")),
        ({"B": "2:4"}, ("protocol.base cannot be tuned",)),
        ({"seed": "1,2"}, ("cannot be tuned",)),
    ],
)
def test_invalid_ranges_are_named(over: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        tuning(tmp_path / "out", over)
    assert all(word in str(error.value) for word in words), error.value
    assert not (tmp_path / "out").exists()


def test_other_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="harmonic_mean"):
        tuning(tmp_path, {"loss.csc.weight": "1:2"}, metric="harmonic")
    with pytest.raises(UserError, match="KEY=LOW:HIGH"):
        parse_option("loss.csc.weight")
    with pytest.raises(UserError, match="No setting"):
        search_space({}, print)


def test_values_after_each_task_agree_with_a_slow_version() -> None:
    """The running mean over tasks of the accuracy on validation images, then the mean over the runs so far."""
    rows = [[[90.0], [80.0, 60.0]], [[50.0], [40.0, 20.0]]]
    results = [
        {"status": "finished", "headline": "nme", "validation": {"matrix": {"nme": m}, "task_sizes": [2, 1]}}
        for m in rows
    ]
    first = [90.0, (90 + (2 * 80 + 60) / 3) / 2]
    second = [50.0, (50 + (2 * 40 + 20) / 3) / 2]
    expected = {1: first[0], 2: first[1], 3: (first[1] + second[0]) / 2, 4: (first[1] + second[1]) / 2}
    assert running_values(results, "average_incremental_accuracy") == pytest.approx(expected)
    assert running_values([results[0], {}], "average_incremental_accuracy").keys() == {1, 2}
    assert running_values(results, "harmonic_mean").keys() == {2, 4}  # not defined after the first task
    assert running_values([{}], "act") == {}


def test_pruning_compares_values_at_the_same_step() -> None:
    completed: list[Any] = [SimpleNamespace(intermediate_values={1: 90.0, 2: float(value)}) for value in range(50, 55)]
    assert below_median(51.9, 2, completed)
    assert not below_median(52.0, 2, completed)
    assert not below_median(10.0, 2, completed[1:])  # too few
    assert not below_median(10.0, 3, completed)


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "trials.json").read_text())
    return {
        **content,
        "trials": [{**trial, "seconds": 0} for trial in content["trials"]],
        "best": content["best"]["number"],
    }


def test_a_killed_study_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    over = (*WEIGHT, "--over", "loss.ct.form=official,batchmean", "--trials", "4")
    whole = run_command(tmp_path, *WORDS, *over, "--out", "whole", "--json")
    assert whole.returncode == 0, whole.stderr
    plugin = signal_plugin(tmp_path / "kill.py", "trial-0002-seed101", after=2)
    every_step = ("--set", "checkpoint.minutes=0")
    killed = run_command(tmp_path, *WORDS, *over, *every_step, "--out", "out", "--plugin", plugin.name)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run_command(tmp_path, *WORDS, *over, *every_step, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "out")["trials"] == read(tmp_path / "whole")["trials"]
    assert json.loads(whole.stdout)["best"]["value"] == max(t["value"] for t in json.loads(whole.stdout)["trials"])
    stored = read(tmp_path / "out")
    assert [trial["state"] for trial in stored["trials"]] == ["complete"] * 4
    assert stored["trials"][0]["settings"]["loss.ct.form"] == "official"  # the current settings come first
    assert sum(stored["importance"].values()) == pytest.approx(1)
    for name in ("history.png", "history.csv", "importance.svg"):
        assert (tmp_path / "out" / "figures" / name).stat().st_size
    result = json.loads((tmp_path / "out" / "trial-0001-seed101" / "result.json").read_text())
    value = result["validation"]["summary"][result["headline"]]["average_incremental_accuracy"]
    assert stored["trials"][1]["value"] == value
    more = run_command(tmp_path, *WORDS, *over[:-1], "5", *every_step, "--out", "out", "--quiet")
    assert more.returncode == 0, more.stderr
    assert [trial["number"] for trial in read(tmp_path / "out")["trials"]] == [0, 1, 2, 3, 4]
    other = run_command(tmp_path, *WORDS, *WEIGHT, "--out", "out")
    assert (other.returncode, "another study" in other.stderr) == (2, True), other.stderr
    best = run_command(tmp_path, "config", "--config", "out/best.yaml", "--json")
    settings = json.loads(best.stdout)
    assert settings["loss"]["csc"]["weight"] == stored["trials"][stored["best"]]["settings"]["loss.csc.weight"]
    assert (settings["data"]["validation"], settings["data"]["train_per_class"], settings["seed"]) == (None, 12, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tune", "lucir+cscct", "digits", *WEIGHT), "data.validation"),
        ((*WORDS, "--over", "loss.csc.wieght=1:2"), "loss.csc.weight"),
        ((*WORDS, *WEIGHT, *WEIGHT), "twice"),
        ((*WORDS, *WEIGHT, "--set", "data.validation=0.01"), "data.validation"),
        (("tune", "lucir", *WEIGHT), "METHOD DATASET"),
    ],
)
def test_user_errors_write_nothing(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = run_command(tmp_path, *words, "--out", "out")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_pruned_and_failed_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny learning rates are stopped before their last task; a rate that gives NaN fails. Two seeds per trial."""
    monkeypatch.setattr(trials_module, "COMPLETE_BEFORE_PRUNING", 1)
    settings = {**VALID, "train.epochs": 4, "data.train_per_class": 24}
    over = {"train.lr": [0.1, 1e-9, 1e-8, 1e30]}
    result = cscct.tune(
        "lucir", "digits", over=over, trials=8, seeds=(101, 102), settings=settings, out=tmp_path / "out"
    )
    states = {trial.settings["train.lr"]: trial.state for trial in result.trials}
    assert result.best is not None
    assert (result.best.settings, result.best.tasks) == ({"train.lr": 0.1}, 6)
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    assert pruned
    assert all(trial.tasks < 6 for trial in pruned)
    assert all((trial.value or 0) < (result.best.value or 0) for trial in pruned)
    assert states.get(1e30, "failed") == "failed"
    assert len(result.to_frame()) == len(result.trials) == 8
    with pytest.raises(RunFailed, match="No trial is complete"):
        cscct.tune("lucir", "digits", over={"train.lr": [1e30, 1e31]}, trials=1, settings=VALID, out=tmp_path / "bad")


def test_trials_in_several_processes(tmp_path: Path) -> None:
    done = run_command(tmp_path, *WORDS, *WEIGHT, "--trials", "2", "--jobs", "2", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert [trial["state"] for trial in read(tmp_path / "out")["trials"]] == ["complete"] * 2


def test_processes_that_start_together_share_the_trials(tmp_path: Path) -> None:
    """No trial is executed twice, and no process reports what another has reported."""
    words = (*WORDS, *WEIGHT, "--trials", "4", "--out", "out")
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: run_command(tmp_path, *words), range(2)))
    assert [process.returncode for process in done] == [0, 0], [process.stderr for process in done]
    assert not any("warn" in process.stderr.lower() or "Skipped" in process.stderr for process in done)
    assert [trial["state"] for trial in read(tmp_path / "out")["trials"]] == ["complete"] * 4
    executed = [
        line.split()[1] for process in done for line in process.stderr.splitlines() if line.startswith("trial ")
    ]
    assert sorted(executed) == ["0", "1", "2", "3"]
    assert not list((tmp_path / "out").glob(".*trial*"))


def test_a_trial_belongs_to_one_process(tmp_path: Path) -> None:
    """From before its first run is started; a process that has ended gives it up."""
    spec = tuning(tmp_path / "out", {"loss.csc.weight": "1:2"})
    study = spec.open()
    schedulers = [
        TrialScheduler(spec, study, 1, None, None, prune=False, report=print, warn=print, stop=lambda: False)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    trial = schedulers[0]._next()
    assert trial is not None
    assert schedulers[1]._next() is None
    schedulers[0]._release(trial.number)
    again = schedulers[1]._next()
    assert again is not None
    assert again.number == trial.number
