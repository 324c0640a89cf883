"""Accuracy against a setting that was varied."""

from pathlib import Path

import pytest

from cscct.analysis.groups import group_runs
from cscct.analysis.load import find_runs, read_runs
from cscct.analysis.statistics import summarise
from cscct.reporting import write_report
from cscct.reporting.sweeps import Sweep, find_sweeps, sweep_figure
from synthetic import make_run


def sweeps_in(folder: Path) -> dict[str, list[Sweep]]:
    return find_sweeps(summarise(group_runs(read_runs(find_runs([folder]), lambda _: None))))


def test_a_sweep_has_a_line_for_each_method(tmp_path: Path) -> None:
    results = {}
    for method in ("lucir+csc", "podnet+csc"):
        for weight in (3.0, 0.5, 1.0):
            for seed in (1, 2):
                name = f"{method}-{weight}-{seed}"
                sets = (f"loss.csc.weight={weight}",)
                results[name] = make_run(tmp_path / name, method, "digits", *sets, seed=seed)
    sweeps = sweeps_in(tmp_path)
    assert list(sweeps) == ["loss.csc.weight"]
    assert [(sweep.label, sweep.values) for sweep in sweeps["loss.csc.weight"]] == [
        ("lucir+csc", [0.5, 1.0, 3.0]),
        ("podnet+csc", [0.5, 1.0, 3.0]),
    ]
    picture = sweep_figure("x", sweeps["loss.csc.weight"])
    averages = [
        results[f"lucir+csc-0.5-{seed}"]["summary"]["classifier"]["average_incremental_accuracy"] for seed in (1, 2)
    ]
    method, value, mean, sd, seeds = picture.table[1]
    assert (method, value, seeds) == ("lucir+csc", 0.5, 2)
    assert mean == pytest.approx(sum(averages) / 2)
    assert sd == pytest.approx(abs(averages[0] - averages[1]) / 2**0.5)
    assert len(picture.table) == 7


def test_the_page_shows_a_sweep(tmp_path: Path) -> None:
    for size in (5, 9):
        make_run(tmp_path / str(size), "lucir", "digits", f"memory.per_class={size}")
    page = write_report([tmp_path], tmp_path / "out", warn=lambda _: None)
    assert (tmp_path / "out" / "figures" / "sweep-memory.per_class.png").is_file()
    assert "Effect of memory.per_class, all other settings being equal." in page.read_text()


def test_a_grid_of_two_settings_has_a_figure_for_each(tmp_path: Path) -> None:
    for size in (10, 20):
        for batch in (16, 32):
            sets = (f"memory.per_class={size}", f"train.batch_size={batch}")
            make_run(tmp_path / f"{size}-{batch}", "lucir", "digits", *sets)
    sweeps = sweeps_in(tmp_path)
    assert {setting: [(sweep.label, sweep.values) for sweep in lines] for setting, lines in sweeps.items()} == {
        "memory.per_class": [("lucir, batch_size=16", [10, 20]), ("lucir, batch_size=32", [10, 20])],
        "train.batch_size": [("lucir, per_class=10", [16, 32]), ("lucir, per_class=20", [16, 32])],
    }


def test_a_sweep_over_epochs_ignores_the_schedule(tmp_path: Path) -> None:
    for epochs in (4, 20):
        make_run(tmp_path / str(epochs), "lucir", "digits", f"train.epochs={epochs}")
    assert [sweep.values for sweep in sweeps_in(tmp_path)["train.epochs"]] == [[4, 20]]


def test_groups_that_differ_in_more_than_one_setting_are_no_sweep(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir", "digits", "memory.per_class=5")
    make_run(tmp_path / "b", "lucir", "digits", "memory.per_class=9", "train.lr=0.2")
    make_run(tmp_path / "c", "podnet", "digits", "memory.per_class=7")
    make_run(tmp_path / "d", "lucir", "digits", "memory.per_class=11", done=2, status="running")
    assert sweeps_in(tmp_path) == {}
