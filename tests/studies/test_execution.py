"""Execution of plans in this process."""

from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Silent
from cscct.analysis.groups import group_plan
from cscct.analysis.tables import results_table
from cscct.data.base import ArrayImages, Dataset, Split
from cscct.errors import Interrupted, UserError
from cscct.studies.datasets import DatasetCache
from cscct.studies.execution import ExecutionOptions, execute_plan
from cscct.studies.grid import plan_comparison
from cscct.studies.plan import PlannedRun, complete_plan, summarize_plan
from cscct.yamltext import parse_override
from planning import QUICK

IN_PROCESS = ExecutionOptions(jobs=1, in_process=True)


def in_memory() -> Dataset:
    """Return four classes that differ in brightness."""
    rng = np.random.default_rng(0)

    def part(count: int) -> Split:
        labels = np.repeat(np.arange(4), count)
        pixels = rng.integers(0, 50, (4 * count, 1, 8, 8)) + 60 * labels[:, None, None, None]
        return Split(ArrayImages(torch.from_numpy(pixels.astype(np.uint8))), labels)

    return Dataset("digits", ("dark", "dim", "bright", "white"), part(20), part(5), channels=1)


def plan(folder: Path, datasets: DatasetCache, *sets: str) -> list[PlannedRun]:
    overrides = [parse_override(text) for text in (*QUICK, "protocol.base=2", "protocol.step=1", *sets)]
    runs = plan_comparison(["lucir", "lucir+cscct"], "digits", [1, 2], folder, overrides=overrides)
    return complete_plan(runs, datasets, 1)


def test_a_comparison_in_this_process_on_a_dataset_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = Silent()
    datasets = DatasetCache(None, listener.warnings.append, in_memory={"digits": in_memory()})
    runs = plan(tmp_path, datasets)
    status = execute_plan(runs, IN_PROCESS, datasets, listener=listener)
    assert set(status.states.values()) == {"finished"}
    assert listener.skipped_images > 0  # first tasks are shared
    table = results_table(list(group_plan(runs).values()), against_first=True)
    assert [(row.group.method, row.group.seeds) for row in table.rows] == [("lucir", (1, 2)), ("lucir+cscct", (1, 2))]
    assert table.rows[1].gain is not None
    assert runs[0].folder.result()["tasks"][0]["classes"][0] in in_memory().class_names
    again = execute_plan(runs, IN_PROCESS, datasets, listener=listener)
    assert again.attempts == {}
    assert capsys.readouterr() == ("", "")  # only callers print


def test_damaged_runs_are_omitted_from_the_table(tmp_path: Path) -> None:
    datasets = DatasetCache(None, print, in_memory={"digits": in_memory()})
    plan(tmp_path, datasets)[0].begin()
    (tmp_path / "lucir-seed1" / "result.json").write_text("null")
    runs = plan(tmp_path, datasets)
    assert [state for _, state, _ in summarize_plan(runs, 1).runs] == ["damaged", "free", "free", "free"]
    status = execute_plan(runs, IN_PROCESS, datasets)
    assert status.failures() == [f"lucir-seed1: {runs[0].damage()}"]
    (tmp_path / "lucir+cscct-seed1" / "config.yaml").write_text("[]")
    table = results_table(list(group_plan(runs).values()), against_first=True)
    assert [row.group.seeds for row in table.rows] == [(2,), (2,)]


def test_a_dataset_in_memory_needs_this_process(tmp_path: Path) -> None:
    datasets = DatasetCache(None, print, in_memory={"digits": in_memory()})
    with pytest.raises(UserError, match="in memory"):
        execute_plan(plan(tmp_path, datasets), ExecutionOptions(jobs=2), datasets)
    assert not any(tmp_path.iterdir())


def test_a_stop_in_this_process(tmp_path: Path) -> None:
    datasets, listener = DatasetCache(None, print, in_memory={"digits": in_memory()}), Silent()
    runs = plan(tmp_path, datasets)
    with pytest.raises(Interrupted, match=r"Stopped after checkpoints\. Run the same command with --out"):
        execute_plan(runs, IN_PROCESS, datasets, listener=listener, stop=lambda: bool(listener.parts))
    assert any((runs[0].folder.path / "checkpoints").glob("*.json"))
    assert execute_plan(runs, IN_PROCESS, datasets).states[runs[0].name] == "finished"


def test_a_plugin_that_ends_the_process_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(*_: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr("cscct.losses.WeightedSum.__call__", value)
    datasets = DatasetCache(None, print, in_memory={"digits": in_memory()})
    runs = plan(tmp_path, datasets)[:1]
    assert execute_plan(runs, IN_PROCESS, datasets).states[runs[0].name] == "failed"
    assert "ended the process" in runs[0].folder.result()["error"]
