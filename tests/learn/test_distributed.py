"""A batch over several processes gives the same result as in one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from conftest import signal_plugin, without_timings
from cscct.classifier.run_model import load_run
from cscct.data.registry import LoadRequest, load
from cscct.learn.distributed import SINGLE_PROCESS, shard_sizes
from cscct.runs.folder import RunFolder
from pages import EXAMPLE

# Run by both processes of a group: a few steps' losses and gradients, without stepping. The leader also computes them
# alone, and writes both.
SCRIPT = """
import json, sys
import torch
from safetensors.torch import save_file
from conftest import Silent, learner_for
from cscct.data.batches import Pool
from cscct.features import nearest_mean
from cscct.learn.loop import StageInputs, _losses
from cscct.learn.distributed import SINGLE_PROCESS, launch
from cscct.losses import Term, WeightedSum
from dataclasses import dataclass
from pathlib import Path
from cscct.plugins import load_plugins
from cscct.structs import Batch

torch.set_num_threads(1)
pair = launch(2, 1, "cpu")
load_plugins([Path(sys.argv[2])])


@dataclass(frozen=True)
class Agreement(Term):
    name = "agreement"
    needs_full_batch = True  # compares every sample with every other one

    def value(self, step):
        products = step.student.features @ step.second.features.T
        return (products - step.teacher.features @ step.second_teacher.features.T).square().mean()


BASES = ("icarl", "lucir", "podnet", "er-ace", "der++", "rkd")


def prepared(base):
    sets = ["train.epochs=1", "data.train_per_class=12", *(["finetune.epochs=1"] if base == "podnet" else [])]
    learner = learner_for(f"{base}+cscct", *sets)
    first, second = learner.stream.tasks[:2]
    learner.learn(first, Silent())  # in every process alone: the same bits
    learner.teacher = learner.network.frozen_copy()
    learner.network.head.grow(learner._initial_weights(second, learner._class_features(second)))
    torch.manual_seed(0)
    with torch.no_grad():  # away from the teacher, so that no distance is zero
        for parameter in learner.network.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    learner.network.requires_grad_(True)
    return learner


def measure(base, learner, group):
    first, second = learner.stream.tasks[:2]
    parameters = [*learner.network.backbone.parameters(), *learner.network.head.trainable(old=False, scale=True)]
    learner.group = group
    new = [i for label in second.classes for i in learner.stream.train[label]]
    old = [i for label in range(second.n_old) for i in learner.memory.exemplars[label]]
    owner = {i: label for label in range(second.n_seen) for i in learner.stream.train[label]}
    CASES = {
        "even": old[:8] + new[:8],
        "uneven": old[:4] + new[:7],
        "no old sample in the second share": old[:6] + new[:6],
        "no new sample in the first share": old[:8] + new[:7],
        "no old sample at all": new[:9],
        "fewer samples than processes": new[:1],
    }
    found = {}
    for name, chosen in CASES.items():
        indices = torch.tensor(chosen)
        labels = torch.tensor([owner[i] for i in chosen])
        part = group.shard(len(chosen))
        own = part if part.stop > part.start else slice(0, 1)
        images, second_view = (
            learner.stream.train_view.train(indices, torch.Generator().manual_seed(seed), own) for seed in (1, 2))
        stored = {i: row for label, rows in learner.memory.stored.items()
                  for i, row in zip(learner.memory.exemplars[label], rows)}
        nothing = torch.full((second.n_old,), torch.nan)
        stored = torch.stack([stored.get(i, nothing) for i in chosen])[part] if stored else None
        batch = Batch(images, labels[part], (labels >= second.n_old)[part], stored)
        terms = learner.config.terms
        if base == "rkd":
            batch, terms = batch._replace(second=second_view), (*terms, Agreement(weight=0.1))
        loss = WeightedSum(terms, second)
        nets = learner.network, learner.teacher
        work = StageInputs("train", second, *nets, loss, parameters, lambda *_: [], False, group)
        learner.network.eval()  # batch norm frozen: its statistics are each process's own
        network = group.wrap_network(learner.network)
        network.eval()
        for parameter in parameters:
            parameter.grad = None
        assert group.sum_sizes(len(batch.labels)) == len(chosen)
        total, parts = _losses(work, network, batch, len(chosen))
        total.backward()
        values = group.sum(torch.stack([part.detach() for part in parts.values()])) / group.size
        for term, value in zip(parts, values):
            found[f"{name}: loss {term}"] = value.reshape(1)
        for i, parameter in enumerate(parameters):
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            found[f"{name}: gradient {i}"] = gradient.clone()
    found["features"] = learner.evaluator.__class__(learner.network, 7, torch.device("cpu"), group).features(
        learner.stream.train_view, torch.tensor(new))
    found["few features"] = learner.evaluator.__class__(learner.network, 7, torch.device("cpu"), group).features(
        learner.stream.train_view, torch.tensor(new[:1]))
    indices, labels = learner.stream.seen_images(second.n_old)
    reader = learner.evaluator.__class__(learner.network, 7, torch.device("cpu"), group)
    means = torch.randn(second.n_seen, 64, generator=torch.Generator().manual_seed(3))
    confusion, found["tested"], _ = reader.test(learner.stream.test_view, indices, labels, {"nme": nearest_mean(means)})
    found["confusion"] = confusion["nme"]
    return {f"{base}: {name}": value.contiguous() for name, value in found.items()}


learners = {base: prepared(base) for base in BASES}
for group in (SINGLE_PROCESS, pair) if pair.is_leader else (pair,):
    found = [measure(base, learner, group) for base, learner in learners.items()]
    if pair.is_leader:
        save_file({name: value for part in found for name, value in part.items()}, f"{sys.argv[1]}-{group.size}")
"""


def test_two_processes_give_the_losses_and_gradients_of_one(tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "found"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}:{root.parent / 'src'}"}
    command: list[Any] = [sys.executable, script, out, root.parent / "examples" / "rkd.py"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, two = (load_file(f"{out}-{processes}") for processes in (1, 2))
    assert one.keys() == two.keys()
    assert sum("loss csc" in name for name in one) == 6 * 6
    for name, expected in one.items():
        atol = 1e-5 * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(
            two[name], expected, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )
    for base in ("icarl", "lucir", "podnet"):
        gradients = [value for name, value in one.items() if name.startswith(f"{base}: even: gradient")]
        assert sum(bool(value.abs().max() > 1e-4) for value in gradients) > len(gradients) / 2


def test_shares() -> None:
    assert shard_sizes(10, 3) == [4, 3, 3]
    assert shard_sizes(2, 4) == [1, 1, 0, 0]
    assert SINGLE_PROCESS.shard(5) == slice(0, 5)


QUICK = ["--set", "data.train_per_class=30", "--set", "checkpoint.minutes=0", "--threads", "1"]


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cscct", *words]
    return subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def until(process: subprocess.Popen[str], done: Callable[[], bool]) -> None:
    """Waits; the process must not end before."""
    for _ in range(6000):
        if done():
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    raise AssertionError("it never came to that")


def child_of(process: subprocess.Popen[str]) -> int:
    """The process that computes along."""
    found = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rpartition(")")[2].split()[1] == str(process.pid)
    ]
    python = [pid for pid in found if b"cscct" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(python) == 1
    return python[0]


def test_two_processes_compute_with_one_network(cscct: Any, tmp_path: Path) -> None:
    """Killed and continued they give the same bits, and the stored model gives the stored result. In one process, where
    sums have other roundings, the run continues at the same place and learns as well."""
    words = ["run", "lucir+cscct", "digits", *QUICK, "--set", "train.epochs=4", "--devices", "2", "--quiet"]
    whole = start(tmp_path, *words, "--out", "whole")
    assert whole.wait(timeout=300) == 0, whole.communicate()[1]
    plugin = signal_plugin(tmp_path / "kill.py", "two", after=4 * (4 + 3) + 2 + 5)  # in the third task's second epoch
    killed = start(tmp_path, *words, "--out", "two", "--plugin", str(plugin))
    assert killed.wait(timeout=300) == -signal.SIGKILL, killed.communicate()[1]
    before = (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()
    assert len(before) == 4 + 4 + 1
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    resumed = start(tmp_path, "resume", "two", "--quiet")
    alone = cscct("resume", "one", "--devices", "1", "--quiet")
    assert resumed.wait(timeout=300) == 0, resumed.communicate()[1]
    assert alone.returncode == 0, alone.stderr
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "two", "one")]
    assert without_timings(results[0]) == without_timings(results[1])

    after = (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()
    assert after[: len(before)] == before
    records = [json.loads(line) for line in after]
    assert [4 * one["task"] + one["epoch"] for one in records] == list(range(4 * 4))
    begun, *rest = [one["losses"]["cross_entropy"] for one in records if one["task"] == 2]
    assert max(rest) < begun  # it falls, whoever computes
    assert (results[2]["status"], len(results[2]["tasks"])) == ("finished", 4)

    model, dataset = load_run(tmp_path / "two"), load("digits", LoadRequest(None, False, 0.2, 1, print))
    labels = torch.tensor([model.class_names.index(dataset.class_names[label]) for label in dataset.test.labels])
    said = torch.tensor([model.class_names.index(name) for name in model.predict(dataset.test.images.pixels)])  # type: ignore[union-attr]
    found = torch.bincount(10 * labels + said, minlength=100).view(10, 10)
    stored = RunFolder(tmp_path / "two").task(3)["confusion.classifier"]
    assert int((found - stored).abs().sum()) <= 4  # batches are cut elsewhere: two images may lie on a boundary


def test_losses_of_a_plugin_file(tmp_path: Path) -> None:
    """The processes exchange the settings, of which the loss is a part."""
    words = ["run", "rkd", "digits", *QUICK, "--set", "train.epochs=1", "--devices", "2", "--quiet", "--out", "run"]
    run = start(tmp_path, *words, "--plugin", str(EXAMPLE))
    assert run.wait(timeout=300) == 0, run.communicate()[1]
    assert RunFolder(tmp_path / "run").result()["status"] == "finished"


@pytest.mark.parametrize("victim", ["leader", "other"])
def test_killed_process_stops_the_other(victim: str, tmp_path: Path) -> None:
    words = ["run", "lucir+cscct", "digits", *QUICK, "--out", "two", "--devices", "2", "--set", "train.epochs=200"]
    leader = start(tmp_path, *words, "--quiet")
    until(leader, lambda: (tmp_path / "two" / "checkpoints").is_dir())
    other = child_of(leader)
    if victim == "leader":
        leader.kill()
        for _ in range(6000):
            if not Path(f"/proc/{other}").exists() or "Z" in Path(f"/proc/{other}/stat").read_text().split()[2]:
                break
            time.sleep(0.02)
        else:
            raise AssertionError("the other process goes on")
    else:
        os.kill(other, signal.SIGKILL)
        assert leader.wait(timeout=120) == 1
    said = leader.communicate(timeout=120)[1]
    assert "Another process of this run has ended" in said
    assert "Traceback" not in said
