"""Extensions: events, state in checkpoints, shared first tasks and models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import cscct
from conftest import Silent, settings_for, without_timings
from cscct.config import Settings
from cscct.errors import Interrupted, RunFailed, UserError
from cscct.learn.protocol import complete
from cscct.methods import EXTENSIONS, Extension, TaskContext
from cscct.runs.exemplars import load_exemplars
from cscct.runs.first_tasks import FirstTaskCache
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.studies.datasets import load_dataset

SMALL = ("train.epochs=2", "data.train_per_class=16", "data.classes=6", "protocol.base=2", "runtime.threads=1")
STEPS = 10  # two epochs of tasks with 32, 42 and 52 images in batches of 32


@dataclass(frozen=True)
class Recorder(Extension):
    """Counts its events, and adds noise to the images and the gradients."""

    noise: float = 0.01

    name = "recorder"

    def _count(self, event: str) -> None:
        self.state[event] = self.state.get(event, torch.tensor(0)) + 1

    def begin_task(self, context: TaskContext) -> None:
        self._count("begin")
        assert (context.teacher is None) == context.task.is_first
        assert context.network.head.classes == context.task.n_seen

    def end_task(self, context: TaskContext) -> None:
        self._count("end")
        batches = list(context.batches("new", 10))
        self.state["pixels"] = torch.cat([batch.images for batch in batches]).mean()
        assert set(torch.cat([batch.labels for batch in batches]).tolist()) == set(context.task.classes)

    def prepare_batch(self, batch: Any, generator: torch.Generator) -> Any:
        return batch._replace(images=batch.images + self.noise * torch.randn(batch.images.shape, generator=generator))

    def backward(self, total: Any, parts: Any, parameters: Any) -> None:
        torch.testing.assert_close(sum(parts.values()), total)
        (total * (1 + self.noise * self.state["begin"])).backward()

    def after_step(self, context: TaskContext) -> None:
        self._count("step")
        self.state["weight"] = context.parameters()["head.new_weight"].detach().clone()


@dataclass(frozen=True)
class TrainedScale(Extension):
    """A parameter that is trained together with the network."""

    start: float = 1.0

    name = "trained_scale"
    several_processes = True

    def begin_task(self, context: TaskContext) -> None:
        self.state.setdefault("scale", torch.tensor(self.start))

    def parameters(self) -> list[torch.Tensor]:
        return [self.state["scale"].requires_grad_()]


@pytest.fixture(autouse=True)
def _register(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTENSIONS, "recorder", Recorder)
    monkeypatch.setitem(EXTENSIONS, "trained_scale", TrainedScale)


def settings(*sets: str) -> Settings:
    chosen = settings_for("lucir+cscct", "digits", *SMALL, "extension.recorder.noise=0.02", *sets)
    return complete(chosen, load_dataset(chosen, None, print))


def run(folder: Path, chosen: Settings, stop: Any = lambda: False, cache: FirstTaskCache | None = None) -> Any:
    dataset = load_dataset(chosen, None, print)
    return execute(chosen, dataset, RunFolder(folder), Silent(), print, cache, stop)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:  # set up before the fixtures of functions
        patch.setitem(EXTENSIONS, "recorder", Recorder)
        run(folder, settings())
    return folder


def state(folder: Path) -> dict[str, torch.Tensor]:
    return load_exemplars(folder).extension


def test_events(whole: Path) -> None:
    counts = {event: int(state(whole)[event]) for event in ("begin", "end", "step")}
    assert counts == {"begin": 3, "end": 3, "step": STEPS}


@pytest.mark.parametrize("step", [1, 4, STEPS - 1])
def test_interrupted_run_has_identical_bits_and_state(whole: Path, tmp_path: Path, step: int) -> None:
    calls = iter(range(1, 1000))
    with pytest.raises(Interrupted):
        run(tmp_path / "run", settings(), lambda: next(calls) == step)
    result = run(tmp_path / "run", settings())
    assert without_timings(result) == without_timings(RunFolder(whole).result())
    expected, resumed = state(whole), state(tmp_path / "run")
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def test_shared_first_task_restores_the_state(whole: Path, tmp_path: Path) -> None:
    cache = FirstTaskCache(tmp_path / "first")
    results = [run(tmp_path / name, settings(), cache=cache) for name in ("a", "b")]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"] == RunFolder(whole).result()["weights_sha256"]
    assert torch.equal(state(tmp_path / "a")["pixels"], state(tmp_path / "b")["pixels"])
    other = run(tmp_path / "c", settings("extension.recorder.noise=0.5"), cache=cache)
    assert other["weights_sha256"] != results[0]["weights_sha256"]
    assert len(list((tmp_path / "first").glob("*.safetensors"))) == 2


def test_model_of_a_run_keeps_the_state(whole: Path, tmp_path: Path) -> None:
    model = cscct.load(whole)
    model.save(tmp_path / "model")
    loaded = cscct.load(tmp_path / "model")
    training = loaded.state_.training
    assert training is not None
    assert torch.equal(training.extension["weight"], state(whole)["weight"])
    assert list(training.task_sizes) == [2, 2, 2]


@pytest.mark.parametrize("event", ["begin_task", "end_task"])
def test_state_must_consist_of_tensors(event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported before anything is written."""
    monkeypatch.setattr(Recorder, event, lambda self, context: self.state.update(list=[1]))
    with pytest.raises(UserError, match="keeps a list under"):
        run(tmp_path / "runs" / "run", settings())
    assert not list(tmp_path.iterdir())


def test_state_of_later_events_must_consist_of_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "after_step", lambda self, context: self.state.update(list=[1]))
    with pytest.raises(RunFailed, match="keeps a list under"):
        run(tmp_path / "run", settings("checkpoint.minutes=0"))


def test_few_images_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`end_task` is tried with one image of each class, with which it may fail."""
    real = Recorder.end_task

    def need_many(self: Recorder, context: TaskContext) -> None:
        assert sum(len(batch.labels) for batch in context.batches("new", 10)) >= 32
        real(self, context)

    monkeypatch.setattr(Recorder, "end_task", need_many)
    assert run(tmp_path / "run", settings())["status"] == "finished"


def test_state_keeps_its_memory_format() -> None:
    """The rounding of a sum depends on it, and files store tensors in one order."""
    extension, restored = Recorder(), Recorder()
    values = torch.randn(2, 3, 4, 4)
    extension.state.update({"a": values, "b": values.to(memory_format=torch.channels_last), "c": torch.tensor(1)})
    restored.load_state_dict({key: tensor.contiguous() for key, tensor in extension.state_dict().items()})
    for key, tensor in extension.state.items():
        assert torch.equal(restored.state[key], tensor)
        assert restored.state[key].stride() == tensor.stride()
    assert restored.state.keys() == extension.state.keys()


def test_attributes_cannot_be_assigned() -> None:
    with pytest.raises(AttributeError):
        Recorder().steps = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["extension.recorder.nois=1"], "nois"),
        (["extension.recordr.noise=1"], "recorder"),
        (["extension.recorder.noise=a"], "noise"),
        (["loss.parameter_drift.weight=1.0"], "extension"),
        (["extension.recorder.noise=1", "extension.ewc.samples=1"], "at most one"),
        (["extension.recorder.noise=1", "runtime.devices=2"], "several processes: use"),
        (["extension.trained_scale.start=1.0", "runtime.devices=2"], "several processes, because it trains parameters"),
    ],
)
def test_invalid_settings(sets: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings_for("lucir", "digits", *sets)
