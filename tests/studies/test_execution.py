"""Plans carried out without the command line."""

from __future__ import annotations

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
from cscct.studies.execution import ExecutionOptions, carry_out
from cscct.studies.grid import plan_comparison
from cscct.studies.plan import PlannedRun, complete_plan, summarize_plan
from cscct.yamltext import parse_override
from planning import QUICK

HERE = ExecutionOptions(jobs=1, in_process=True)


def in_memory() -> Dataset:
    """Four classes, told apart by brightness."""
    rng = np.random.default_rng(0)

    def part(count: int) -> Split:
        labels = np.repeat(np.arange(4), count)
        pixels = rng.integers(0, 50, (4 * count, 1, 8, 8)) + 60 * labels[:, None, None, None]
        return Split(ArrayImages(torch.from_numpy(pixels.astype(np.uint8))), labels)

    return Dataset("digits", ("dark", "dim", "bright", "white"), part(20), part(5), channels=1)


def plan(folder: Path, datasets: DatasetCache, *sets: str) -> list[PlannedRun]:
    overrides = [parse_override(text) for text in (*QUICK, "protocol.base=2", "protocol.step=1", *sets)]
    found = plan_comparison(["lucir", "lucir+cscct"], "digits", [1, 2], folder, overrides=overrides)
    return complete_plan(found, datasets, 1)


def test_a_comparison_in_this_process_on_a_dataset_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = Silent()
    datasets = DatasetCache(None, listener.warnings.append, given={"digits": in_memory()})
    runs = plan(tmp_path, datasets)
    status = carry_out(runs, HERE, datasets, listener=listener)
    assert set(status.states.values()) == {"finished"}
    assert listener.skipped_images > 0  # first tasks are shared
    table = results_table(list(group_plan(runs).values()), against_first=True)
    assert [(row.group.method, row.group.seeds) for row in table.rows] == [("lucir", (1, 2)), ("lucir+cscct", (1, 2))]
    assert table.rows[1].gain is not None
    assert runs[0].folder.result()["tasks"][0]["classes"][0] in in_memory().class_names
    again = carry_out(runs, HERE, datasets, listener=listener)
    assert again.attempts == {}
    assert capsys.readouterr() == ("", "")  # printing is left to the caller


def test_a_run_damaged_before_or_after_leaves_the_others_their_table(tmp_path: Path) -> None:
    datasets = DatasetCache(None, print, given={"digits": in_memory()})
    plan(tmp_path, datasets)[0].begin()
    (tmp_path / "lucir-seed1" / "result.json").write_text("null")
    runs = plan(tmp_path, datasets)
    assert [state for _, state, _ in summarize_plan(runs, 1).runs] == ["damaged", "free", "free", "free"]
    status = carry_out(runs, HERE, datasets)
    assert status.failures() == [f"lucir-seed1: {runs[0].damage()}"]
    (tmp_path / "lucir+cscct-seed1" / "config.yaml").write_text("[]")
    table = results_table(list(group_plan(runs).values()), against_first=True)
    assert [row.group.seeds for row in table.rows] == [(2,), (2,)]


def test_a_dataset_in_memory_is_not_handed_to_processes(tmp_path: Path) -> None:
    datasets = DatasetCache(None, print, given={"digits": in_memory()})
    with pytest.raises(UserError, match="in memory"):
        carry_out(plan(tmp_path, datasets), ExecutionOptions(jobs=2), datasets)
    assert not any(tmp_path.iterdir())


def test_a_stop_in_this_process(tmp_path: Path) -> None:
    datasets, listener = DatasetCache(None, print, given={"digits": in_memory()}), Silent()
    runs = plan(tmp_path, datasets)
    with pytest.raises(Interrupted, match=r"Stopped after checkpoints. The same command with --out"):
        carry_out(runs, HERE, datasets, listener=listener, stop=lambda: bool(listener.parts))
    assert any((runs[0].folder.path / "checkpoints").glob("*.json"))
    assert carry_out(runs, HERE, datasets).states[runs[0].name] == "finished"


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    datasets = DatasetCache(None, print, given={"digits": in_memory()})
    runs = plan(tmp_path, datasets, "runtime.device=mps")
    if torch.backends.mps.is_available():
        pytest.skip("there is one here")
    with pytest.raises(UserError, match="There is no mps device"):
        carry_out(runs, HERE, datasets)
    assert not any(tmp_path.iterdir())
