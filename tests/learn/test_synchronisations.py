"""Host synchronisations in the batch loop, counted on a fake device."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from conftest import Silent, digits, learner_for
from cscct.data.augment import make_view
from cscct.data.base import ArrayImages, to_device
from cscct.errors import RunFailed
from cscct.learn.learner import Learner
from cscct.learn.loop import READING_INTERVAL, StagePosition
from cscct.losses import TERMS
from cscct.methods import METHODS
from cscct.specs import TransformSpec
from fake_device import DEVICE, FakeDevice, FakeTensor, fake_device

TINY = (
    *("train.epochs=1", "train.batch_size=2", "data.train_per_class=3", "data.test_per_class=1"),
    *("protocol.base=2", "protocol.step=2", "network.depth=8"),
)
TRAINED = sorted(name for name, method in METHODS.items() if method.trains)
assert len(TRAINED) == 25
GROWING = ("der", "foster", "memo")  # CSC compares features of equal size


def on_fake_device(method: str, *sets: str) -> Learner:
    """Return a learner on the fake device whose stages have one epoch, and which fits no predictors."""
    learner = learner_for(method, *TINY, *sets)
    config = learner.config
    finetune = config.finetune and replace(config.finetune, epochs=1, batch_size=2)
    stages = {name: replace(stage, epochs=1, batch_size=2) for name, stage in config.stages.items()}
    config = replace(config, finetune=finetune, stages=stages, predictors={})
    return Learner(learner.network, learner.memory, config, learner.stream, DEVICE)


class Steps(Silent):
    """Counts the synchronisations from the end of the first step of an epoch to the end of its last step."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self.device, self.steps = device, 0
        self.found: list[str] = []
        self.before: int | None = None

    def step(self, *arguments: object) -> None:
        recorded = self.device.synchronisations
        if self.before is not None:
            self.steps += 1
            self.found += recorded[self.before :]
        self.before = len(recorded)

    def epoch(self, record: dict[str, object]) -> None:
        self.before = None
        self.epochs.append(record)


@pytest.mark.parametrize("method", [name if name in GROWING else f"{name}+cscct" for name in TRAINED])
def test_a_step_does_not_wait_for_the_device(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    digits()  # loaded outside of the fake device, which is slow
    with fake_device(monkeypatch) as device:
        learner, listener = on_fake_device(method), Steps(device)
        for task in learner.stream.tasks[:2]:
            learner.learn(task, listener)
    assert isinstance(next(learner.network.parameters()), FakeTensor)
    assert 4 <= listener.steps < READING_INTERVAL * len(listener.epochs)
    assert listener.found == []


def test_losses_are_read_at_intervals_and_agree_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = ("data.train_per_class=25", "data.transform.flip=true")
    expected = Silent()
    learner = learner_for("finetune", *TINY, *sets)
    learner.learn(learner.stream.tasks[0], expected)
    with fake_device(monkeypatch) as device:
        learner, listener = on_fake_device("finetune", *sets), Steps(device)
        learner.learn(learner.stream.tasks[0], listener)
    assert listener.steps == 24
    assert listener.found == ["copy to the CPU"]
    (record,), (on_cpu,) = listener.epochs, expected.epochs
    assert record["losses"] == pytest.approx(on_cpu["losses"])


@pytest.mark.parametrize("saved_at", [3, None])
def test_a_loss_that_is_not_finite_stops_the_run_before_a_checkpoint(
    saved_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TERMS["cross_entropy"], "value", lambda self, step: step.student.logits.sum() * torch.nan)
    saved = []

    def on_step(stage: str, position: StagePosition, optimizer: Callable[[], object]) -> None:
        if position.step == saved_at:
            saved.append(optimizer())

    with fake_device(monkeypatch):
        learner = on_fake_device("finetune")
        with pytest.raises(RunFailed, match="cross_entropy became nan in task 1, train epoch 1, step 1"):
            learner.learn(learner.stream.tasks[0], Silent(), on_step=on_step)
    assert not saved


@pytest.mark.parametrize("limit", [0.0, 1000.0])
def test_small_datasets_are_kept_on_the_device(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All images are copied once, and augmented as on the CPU; above the limit, batches are copied."""
    pixels = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    view = make_view(ArrayImages(pixels), TransformSpec(flip=True, padding=2, brightness=0.3), device_mb=limit)
    batches = [torch.arange(start, start + 5) for start in (0, 5, 10)]
    expected = [view.train(indices, torch.Generator().manual_seed(1), slice(1, 4)) for indices in batches]
    copied: list[int] = []

    def observed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        copied.extend([len(tensor)] * (tensor.device != device and tensor.dtype == torch.uint8))
        return to_device(tensor, device)

    monkeypatch.setattr("cscct.data.augment.to_device", observed)
    with fake_device(monkeypatch) as device:
        view.train(batches[0], torch.Generator(), device=DEVICE)  # the first copy includes the constants
        before = len(device.synchronisations)
        images = [view.train(indices, torch.Generator().manual_seed(1), slice(1, 4), DEVICE) for indices in batches]
        plain = view.plain(batches[0], "hflip", DEVICE)
        assert device.synchronisations[before:] == []
        assert copied == ([20] if limit else [5, 3, 3, 3, 5])
        assert all(torch.equal(one.cpu(), other) for one, other in zip(images, expected, strict=True))
        assert torch.equal(plain.cpu(), view.plain(batches[0], "hflip"))


def test_the_fake_device_records_what_synchronises(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_device(monkeypatch) as device:
        values = to_device(torch.tensor([3.0, 0.0, 1.0]), DEVICE)
        mask = values > 0
        assert device.synchronisations == []
        for operation in (
            lambda: values[0].item(),
            lambda: values.tolist(),
            lambda: bool(mask.any()),
            lambda: mask.nonzero(),
            lambda: values[mask],
            lambda: values.unique(),
            lambda: values.cpu(),
            lambda: torch.zeros(3).to(DEVICE),
            lambda: torch.zeros(3).to(DEVICE, non_blocking=True),  # not pinned
        ):
            before = len(device.synchronisations)
            operation()
            assert len(device.synchronisations) == before + 1
        with pytest.raises(AssertionError, match="mixes tensors"):
            values + torch.ones(3)
