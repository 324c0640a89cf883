"""Run folders and first tasks."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from conftest import Silent, run_quietly, settings_for
from cscct import compare, load, resume
from cscct.config import Settings
from cscct.errors import UserError
from cscct.runs.checkpoints import Checkpoints
from cscct.runs.first_tasks import FirstTaskCache, first_task_fingerprint
from cscct.runs.folder import RunFolder
from cscct.storage import tensors_sha256, truncate
from cscct.studies.plan import PlannedRun
from paper_results import result

SMALL = ("train.epochs=2", "data.train_per_class=20")


def test_states_of_a_folder(tmp_path: Path) -> None:
    settings, folder = settings_for("lucir"), RunFolder(tmp_path / "run")
    assert folder.state(settings) == "free"
    folder.create(settings)
    assert folder.state(settings) == "unfinished"
    folder.write_result(result(PlannedRun("lucir", settings, folder), 50.0))
    assert folder.state(settings) == "finished"
    with pytest.raises(UserError, match="another run"):
        folder.state(settings_for("lucir", "digits", "seed=2"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UserError, match="files that are not part of a run"):
        RunFolder(tmp_path / "other").state(settings)
    with pytest.raises(UserError, match="is a file"):
        RunFolder(tmp_path / "other" / "thesis.tex").state(settings)


SAME = ["lucir+csc", "lucir+ct", "lucir+cscct", "icarl", "icarl+cscct", "replay"]
SAME_SETS = [
    "memory.per_class=3",
    "protocol.step=3",
    "protocol.tasks=[4, 1, 5]",
    "loss.less_forget.weight=1",
    "predict.predictor=nme",
    "runtime.fold=false",
    "runtime.compile=frozen",
    "train.sampler=mixed",
    "train={sampler: replay, old_fraction: 0.2}",
]
OTHER_SETS = [
    "train.sampler=sequential",
    "train.views=2",
    "data.transform.augment=[cutout]",
    "train.drop_last=true",
    "seed=2",
    "train.lr=0.2",
    "protocol.base=5",
    "protocol.tasks=[3, 7]",
    "protocol.tasks=[[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]",
    "protocol.tasks=[[3, 1, 2, 0], [4, 5, 6, 7, 8, 9]]",
    "data.validation=0.1",
    "network.depth=14",
    "data.train_per_class=9",
    "loss.cross_entropy.weight=2",
    "data.order=natural",
    "runtime.threads=7",
    "runtime.compile=all",
]


def test_fingerprint_of_the_first_task() -> None:
    def fingerprint(method: str, *sets: str) -> str:
        settings: Settings = settings_for(method, "digits", *sets)
        return first_task_fingerprint(settings, "data")

    lucir = fingerprint("lucir")
    assert {fingerprint(method) for method in SAME} == {lucir}
    assert {fingerprint("lucir", setting) for setting in SAME_SETS} == {lucir}
    assert len({lucir, *(fingerprint("lucir", setting) for setting in OTHER_SETS)}) == len(OTHER_SETS) + 1
    assert fingerprint("podnet") != lucir
    assert first_task_fingerprint(settings_for("lucir"), "other data") != lucir


def test_a_shared_first_task_gives_the_same_result(tmp_path: Path) -> None:
    alone = run_quietly(tmp_path / "alone", "lucir+cscct", *SMALL)
    shared = tmp_path / "first"
    leader, follower = Silent(), Silent()
    run_quietly(tmp_path / "leader", "icarl", *SMALL, first_tasks=shared, listener=leader)
    result = run_quietly(tmp_path / "follower", "lucir+cscct", *SMALL, first_tasks=shared, listener=follower)
    assert leader.skipped_images == 0
    assert follower.skipped_images == 4 * 20 * 2
    assert {record["task"] for record in follower.epochs} == {1, 2, 3}
    assert result["weights_sha256"] == alone["weights_sha256"]
    assert result["matrix"] == alone["matrix"]
    assert len(list(shared.iterdir())) == 1
    assert FirstTaskCache(shared).get("nothing", print) is None


def test_a_damaged_first_task_is_trained_again(tmp_path: Path) -> None:
    cache, warnings = FirstTaskCache(tmp_path), list[str]()
    weights = {"a": torch.ones(3), "b": torch.zeros(2, 2)}
    cache.put("key", weights)
    stored = tmp_path / "key.safetensors"
    whole = stored.read_bytes()
    cached = cache.get("key", warnings.append)
    assert cached is not None
    assert tensors_sha256(cached) == tensors_sha256(weights)
    for damaged in (whole[:-1] + b"\x01", whole[:40], b""):
        stored.write_bytes(damaged)
        assert cache.get("key", warnings.append) is None
    assert len(warnings) == 3
    assert "trained again" in warnings[0]


LINKED = [
    ".lock",
    ".lock-holder",
    "metrics.jsonl",
    ".result.json.tmp",
    ".config.yaml.tmp",
    "checkpoints",
    "tasks",
    "result.json",
]


@pytest.mark.parametrize("name", LINKED)
def test_links_in_a_run_folder_are_not_followed(name: str, tmp_path: Path) -> None:
    """A folder may come from another person: targets of its links are neither written, truncated nor deleted."""
    outside = tmp_path / "outside"
    if name in ("checkpoints", "tasks"):
        outside.mkdir()
        (outside / "000.safetensors").write_text("precious")
        (outside / "checkpoint-000001.json").write_text("precious")
    else:
        outside.write_text("precious")
    (tmp_path / "run").mkdir()
    settings = settings_for("lucir", "digits", *SMALL, "runtime.threads=1")
    RunFolder(tmp_path / "run").create(settings)
    link = tmp_path / "run" / name
    link.unlink(missing_ok=True)
    link.symlink_to(outside)
    with suppress(UserError):
        run_quietly(tmp_path / "run", "lucir", *SMALL)
    files = sorted(outside.iterdir()) if outside.is_dir() else [outside]
    assert [file.read_text() for file in files] == ["precious"] * len(files)
    assert len(files) == (2 if outside.is_dir() else 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 20000, b"{}", b'{"status": 1}'])
def test_a_damaged_result_is_reported(content: bytes, tmp_path: Path) -> None:
    settings = settings_for("lucir", "digits", *SMALL)
    folder = RunFolder(tmp_path / "run")
    folder.create(settings)
    (folder.path / "result.json").write_bytes(content)
    with pytest.raises(UserError, match=r"result\.json is damaged"):
        folder.state(settings)


def test_a_config_edited_after_a_checkpoint_is_detected(tmp_path: Path) -> None:
    from interrupted import small
    from runs.test_resume import halfway

    settings = small("lucir", "checkpoint.minutes=0")
    halfway(tmp_path / "run", settings)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.1", "lr: 0.2"))
    with pytest.raises(UserError, match=r"changed after its last checkpoint: train\.lr was 0\.1 and is now 0\.2"):
        resume(tmp_path / "run")


def test_clear_keeps_files_of_the_user(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save({"a": torch.ones(1)}, {})
    (checkpoints.folder / "notes.txt").write_text("mine")
    (checkpoints.folder / ".checkpoint-000009.json.tmp").write_text("half")
    checkpoints.clear()
    assert [path.name for path in checkpoints.folder.iterdir()] == ["notes.txt"]


def test_truncated_metrics_are_cut_at_a_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for epoch in range(3):
        folder.append_metrics({"epoch": epoch})
    size = folder.metrics_size()
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-5])
    folder.cut_metrics(size)
    folder.append_metrics({"epoch": 3})
    assert metrics.read_text() == '{"epoch": 0}\n{"epoch": 1}\n{"epoch": 3}\n'
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "empty").cut_metrics(0)


def test_a_kill_before_the_config_is_written_leaves_a_free_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    settings, folder = settings_for("lucir"), RunFolder(tmp_path / "run")
    monkeypatch.setattr("cscct.runs.folder.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.create(settings)
    assert folder.state(settings) == "free"


def test_checkpoints_left_after_the_end_are_removed_by_resume_and_compare(tmp_path: Path) -> None:
    settings = {"train.epochs": 1, "data.train_per_class": 4, "runtime.threads": 1}

    def compared() -> None:
        compare(["lucir", "icarl"], "digits", seeds=[1], settings=settings, out=tmp_path / "both")

    compared()
    left = Checkpoints(tmp_path / "both" / "icarl-seed1" / "checkpoints")
    for again in (compared, lambda: resume(tmp_path / "both" / "icarl-seed1")):
        left.save({"a": torch.ones(1)}, {})
        again()
        assert not left.folder.exists()


def test_a_changed_result_is_detected(tmp_path: Path) -> None:
    result = run_quietly(tmp_path / "run", "lucir", *SMALL)
    file = tmp_path / "run" / "result.json"
    whole = file.read_text()
    assert RunFolder(tmp_path / "run").result() == result
    changes = [('"seed": 1', '"seed": 2'), ('"0"', '"O"'), ('"status": "finished"', '"status": "running"')]
    for old, new in [
        *changes,
        (f'"last_accuracy": {result["summary"]["nme"]["last_accuracy"]}', '"last_accuracy": 99.0'),
    ]:
        assert old in whole
        file.write_text(whole.replace(old, new, 1))
        with pytest.raises(UserError, match=r"result\.json is damaged .*checksum of its content differs"):
            RunFolder(tmp_path / "run").result()
    file.write_text(whole.replace('"seconds": ', '"seconds": 1'))  # the checksum does not cover times
    assert RunFolder(tmp_path / "run").result()["summary"] == result["summary"]


def test_a_changed_model_is_not_loaded(tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", "lucir", *SMALL)
    file = tmp_path / "run" / "model.safetensors"
    assert load(tmp_path / "run").class_names
    whole = file.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole.replace(b'\\"3\\"', b'\\"4\\"')):
        assert damaged != whole
        file.write_bytes(damaged)
        with pytest.raises(UserError, match="checksum of its content differs"):
            load(tmp_path / "run")


def test_pipes_in_a_run_folder_do_not_block(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    os.mkfifo(tmp_path / "metrics.jsonl")
    os.mkfifo(tmp_path / "origin.json")
    with pytest.raises(UserError, match="is a pipe"):
        folder.append_metrics({})
    with pytest.raises(UserError, match="is a pipe"):
        truncate(tmp_path / "metrics.jsonl", 0)
    folder.cut_metrics(100)
    assert folder.origin() == (None, [])


def test_shared_first_tasks_of_a_comparison_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "both" / "first-tasks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="first-tasks is a link"):
        compare(["lucir", "icarl"], "digits", seeds=[1], settings={"train.epochs": 1}, out=tmp_path / "both")
    assert not list((tmp_path / "elsewhere").iterdir())
