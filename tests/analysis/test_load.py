"""Finding and reading run folders."""

import os
from pathlib import Path

import pytest
import torch
import yaml

from cscct.analysis.load import MissingDataError, find_runs, read_runs
from cscct.errors import UserError
from cscct.runs.folder import RunFolder
from synthetic import groups_in, make_run


def test_runs_are_found_once_and_two_levels_down(tmp_path: Path) -> None:
    for name in ("a", "study/b", "study/deep/c"):
        make_run(tmp_path / name)
    (tmp_path / "study" / "first-tasks").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("model: other\n")
    runs = find_runs([tmp_path / "study", tmp_path / "a", tmp_path / "study" / "b"])
    assert [path.relative_to(tmp_path).as_posix() for path in runs] == ["study/b", "study/deep/c", "a"]
    assert len(find_runs([tmp_path])) == 2  # c is three levels down


def test_folders_without_runs_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("model: other\n")
    (tmp_path / "file").touch()
    reasons = {"empty": "no run", "foreign": "no run", "file": "is a file", "nowhere": "does not exist"}
    for name, reason in reasons.items():
        with pytest.raises(UserError, match=reason) as caught:
            find_runs([tmp_path / name])
        assert name in str(caught.value)


@pytest.mark.parametrize(("half", "whole"), [("a", "b"), ("b", "a")])
def test_duplicate_runs_count_once(tmp_path: Path, half: str, whole: str) -> None:
    make_run(tmp_path / half, done=1, status="running")
    make_run(tmp_path / whole)
    warnings: list[str] = []
    (group,) = groups_in(tmp_path, warnings)
    assert [run.path.name for run in group.runs] == [whole]
    assert f"{half} is skipped" in warnings[0]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"status": "finished", "tasks": [{}]}', '{"tasks": [{"classes": ["1"]}]}']
)
def test_a_damaged_result_is_rejected(tmp_path: Path, text: str) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"a/result\.json is damaged"):
        groups_in(tmp_path)


def test_runs_of_version_0_2_belong_to_the_same_group(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=2)
    path = tmp_path / "b" / "config.yaml"
    config = yaml.safe_load(path.read_text()) | {"cscct_version": "0.2.0"}
    config["runtime"] |= config.pop("numerics")  # section of these settings in 0.2
    path.write_text(yaml.safe_dump(config))
    (group,) = groups_in(tmp_path)
    assert group.seeds == (1, 2)


def test_unknown_methods_and_losses_are_read(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    for name in ("config.yaml", "result.json"):
        path = tmp_path / "a" / name
        path.write_text(path.read_text().replace("lucir", "foreign").replace("less_forget", "other_loss"))
    (group,) = groups_in(tmp_path)
    assert group.method == "foreign"
    assert "loss.other_loss.weight" in group.effective


def test_a_named_pipe_instead_of_metrics_does_not_block(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / "metrics.jsonl")
    (run,) = read_runs([tmp_path / "run"], print)
    with pytest.raises(MissingDataError, match=r"metrics\.jsonl does not exist"):
        run.epochs()


def test_bfloat16_is_read(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    folder = RunFolder(tmp_path / "a")
    folder.save_task(1, {"similarity": torch.full((2, 4), 0.5, dtype=torch.bfloat16)})
    (group,) = groups_in(tmp_path)
    assert (group.runs[0].tensors(1)["similarity"] == 0.5).all()


@pytest.mark.parametrize("line", ["method: [lucir]", "data: text", "network: 3"])
def test_a_damaged_config_is_rejected(line: str, tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    config = tmp_path / "a" / "config.yaml"
    raw = yaml.safe_load(config.read_text())
    key, _, value = line.partition(": ")
    config.write_text(yaml.safe_dump({**raw, key: yaml.safe_load(value)}))
    with pytest.raises(UserError, match=rf"config\.yaml is damaged: {key} is"):
        read_runs([tmp_path / "a"], print)
