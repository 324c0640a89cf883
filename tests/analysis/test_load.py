"""From folders to runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import yaml

from cscct.analysis.load import Missing, find_runs, read_runs
from cscct.errors import UserError
from cscct.runs.folder import RunFolder
from synthetic import groups_in, make_run


def test_runs_are_found_two_levels_down_and_once(tmp_path: Path) -> None:
    for name in ("a", "study/b", "study/deep/c"):
        make_run(tmp_path / name)
    (tmp_path / "study" / "first-tasks").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("model: other\n")
    found = find_runs([tmp_path / "study", tmp_path / "a", tmp_path / "study" / "b"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["study/b", "study/deep/c", "a"]
    assert len(find_runs([tmp_path])) == 2  # c is three levels down


def test_what_is_no_run_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("model: other\n")
    (tmp_path / "file").touch()
    for name, sentence in {"empty": "no run", "foreign": "no run", "file": "is a file", "nowhere": "no folder"}.items():
        with pytest.raises(UserError, match=sentence) as caught:
            find_runs([tmp_path / name])
        assert name in str(caught.value)


@pytest.mark.parametrize(("half", "whole"), [("a", "b"), ("b", "a")])
def test_a_run_given_twice_counts_once(tmp_path: Path, half: str, whole: str) -> None:
    make_run(tmp_path / half, done=1, status="running")
    make_run(tmp_path / whole)
    warnings: list[str] = []
    (group,) = groups_in(tmp_path, warnings)
    assert [run.path.name for run in group.runs] == [whole]
    assert f"{half} is left out" in warnings[0]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"status": "finished", "tasks": [{}]}', '{"tasks": [{"classes": ["1"]}]}']
)
def test_a_damaged_result_is_named(tmp_path: Path, text: str) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"a/result\.json is damaged"):
        groups_in(tmp_path)


def test_a_run_of_version_0_2_is_the_same_run(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=2)
    path = tmp_path / "b" / "config.yaml"
    config = yaml.safe_load(path.read_text()) | {"cscct_version": "0.2.0"}
    config["runtime"] |= config.pop("numerics")  # where these settings stood in 0.2
    path.write_text(yaml.safe_dump(config))
    (group,) = groups_in(tmp_path)
    assert group.seeds == (1, 2)


def test_methods_losses_and_datasets_need_not_be_known(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    for name in ("config.yaml", "result.json"):
        path = tmp_path / "a" / name
        path.write_text(path.read_text().replace("lucir", "foreign").replace("less_forget", "other_loss"))
    (group,) = groups_in(tmp_path)
    assert group.method == "foreign"
    assert "loss.other_loss.weight" in group.effective


def test_a_pipe_in_the_place_of_the_epochs_is_not_waited_for(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / "metrics.jsonl")
    (run,) = read_runs([tmp_path / "run"], print)
    with pytest.raises(Missing, match=r"metrics\.jsonl is not there"):
        run.epochs()


def test_small_floats_are_read(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    folder = RunFolder(tmp_path / "a")
    folder.save_task(1, {"similarity": torch.full((2, 4), 0.5, dtype=torch.bfloat16)})
    (group,) = groups_in(tmp_path)
    assert (group.runs[0].tensors(1)["similarity"] == 0.5).all()


@pytest.mark.parametrize("line", ["method: [lucir]", "data: text", "network: 3"])
def test_a_config_of_odd_values_is_refused(line: str, tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    config = tmp_path / "a" / "config.yaml"
    raw = yaml.safe_load(config.read_text())
    key, _, value = line.partition(": ")
    config.write_text(yaml.safe_dump({**raw, key: yaml.safe_load(value)}))
    with pytest.raises(UserError, match=rf"config\.yaml is damaged: {key} in it is"):
        read_runs([tmp_path / "a"], print)
