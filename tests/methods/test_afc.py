"""AFC: its loss and its importances against slow versions, end to end."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

import oracles
from conftest import Silent, run_quietly
from cscct.losses import nca
from cscct.methods import EXTENSIONS, TaskContext
from cscct.methods.afc import weighted_map_distance
from cscct.nets import build_network
from cscct.structs import Batch, Task

SMALL = ("train.epochs=1", "finetune.epochs=1", "data.train_per_class=12", "data.classes=6", "protocol.base=2")


def test_the_loss_matches_loops() -> None:
    generator = np.random.default_rng(0)
    student, teacher, importance = generator.normal(size=(2, 3, 2, 2)), generator.normal(size=(2, 3, 2, 2)), [0, 1, 2.5]
    oracles.compare(
        lambda maps: weighted_map_distance(maps, torch.from_numpy(teacher), torch.tensor(importance)),
        lambda maps: oracles.channel_distance(maps, teacher, np.array(importance)),
        student,
    )
    assert weighted_map_distance(torch.zeros(0, 3, 2, 2), torch.zeros(0, 3, 2, 2), torch.ones(3)).item() == 0


def test_importances_are_squared_gradients_of_single_images() -> None:
    images = torch.randn(5, 1, 8, 8, dtype=torch.float64, generator=Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 2, 1])
    network = build_network("podnet-resnet", 8, 1, "linear", 1, Generator().manual_seed(1)).double()
    network.head.grow(network.head.init_weights(3, Generator().manual_seed(2)))

    def batches(pool: str, size: int) -> Iterator[Batch]:
        assert pool == "all"
        for part in (slice(0, 3), slice(3, 5)):
            yield Batch(images[part], labels[part], labels[part] >= 0)

    extension = EXTENSIONS["channel_importance"]()
    task = Task(index=0, n_old=0, n_new=3)
    extension.end_task(TaskContext(network, task, None, None, torch.device("cpu"), batches, None))  # type: ignore[arg-type]

    for layer in range(3):
        total = np.zeros(16 * 2**layer)
        for image, label in zip(images, labels, strict=True):
            output = network(image[None])
            (gradient,) = torch.autograd.grad(nca(output.scores, label[None], output.scale), output.maps[layer])
            total += (gradient[0].numpy() ** 2).sum(axis=(1, 2))
        np.testing.assert_allclose(extension.state[f"map{layer}"], total / total.mean(), rtol=1e-6)


@pytest.mark.parametrize("method", ["afc", "afc+cscct"])
def test_runs_end_to_end(method: str, tmp_path: Path) -> None:
    listener = Silent()
    run_quietly(tmp_path / "run", method, *SMALL, listener=listener)
    losses = {(record["task"], record["stage"]): set(record["losses"]) for record in listener.epochs}
    assert losses[0, "train"] == losses[1, "finetune"] == {"nca"}
    assert losses[1, "train"] == {"nca", "channel_distillation"} | ({"csc", "ct"} if "+" in method else set())
