"""IL2M: statistics, rectification, and that stored networks keep it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cscct
import oracles
from conftest import Silent, learner_for, run_quietly, settings_for
from cscct.nets import Network, build_network
from cscct.nets.heads import RectifiedHead
from cscct.studies.datasets import load_dataset

SMALL = ("train.epochs=3", "data.train_per_class=40", "data.classes=6", "protocol.base=2")


def test_factors_and_scores_agree_with_slow_versions() -> None:
    learner = learner_for("il2m", *SMALL)
    initial, old_accuracy = [], []
    for task in learner.stream.tasks:
        learner.learn(task, Silent())
        head = learner.network.head.eval()
        assert isinstance(head, RectifiedHead)
        factors = head.log_factor.clone()
        learned = learner.evaluate(task).confusion["classifier"]
        head.log_factor.zero_()  # the plain network
        plain = learner.evaluate(task).confusion["classifier"]
        context = learner.context(task)
        pools = {}
        for pool in ("new", "memory") if task.index else ("new",):
            batches = list(context.batches(pool, 50))
            with torch.no_grad():
                rows = torch.cat([learner.network.eval()(batch.images).logits.softmax(dim=1) for batch in batches])
            pools[pool] = (rows.double().numpy(), torch.cat([batch.labels for batch in batches]).numpy())
        initial.append(pools["new"])
        if task.index:
            expected = oracles.il2m_factors(initial, pools["memory"])
            np.testing.assert_allclose(factors.exp()[: task.n_old], list(expected.values()), rtol=1e-5)
            assert list(expected) == list(range(task.n_old))
            old_accuracy.append((learned.diagonal()[: task.n_old].sum(), plain.diagonal()[: task.n_old].sum()))
        head.log_factor.copy_(factors)
        assert not factors[task.n_old :].any()
    assert all(rectified >= unrectified for rectified, unrectified in old_accuracy)
    assert any(rectified > unrectified for rectified, unrectified in old_accuracy)


def test_head_rectifies_predictions_of_new_classes_only() -> None:
    head = RectifiedHead(2)
    for rows in ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]):
        head.grow(torch.tensor(rows))
    head.rectify(torch.tensor([4.0, 2.0]))
    features = torch.tensor([[0.9, 0.5], [2.0, -1.0]])  # the first one is predicted as new
    plain = head.train()(features)
    assert plain.argmax(dim=1).tolist() == [2, 0]
    rectified = head.eval()(features)
    probabilities = plain[0].softmax(dim=0) * torch.tensor([4.0, 2.0, 1.0])
    torch.testing.assert_close(rectified[0].softmax(dim=0), probabilities / probabilities.sum())
    assert torch.equal(rectified[1], plain[1])
    head.keep([1, 2])
    torch.testing.assert_close(head.eval()(features)[0], rectified[0, 1:])
    head.grow(torch.zeros(1, 2))
    assert torch.equal(head.eval()(features), head.train()(features))  # until the next task is learned


def test_run_predicts_as_it_was_evaluated(tmp_path: Path) -> None:
    result = run_quietly(tmp_path / "run", "il2m+cscct", *SMALL, "data.order=natural")
    model, test = cscct.load(tmp_path / "run"), load_dataset(settings_for("il2m"), None, print).test
    assert model.reader_.network.head.log_factor.any()
    members = test.labels < 6
    predicted = model.predict(test.images.pixels.numpy()[members])  # type: ignore[union-attr]
    accuracy = 100 * (predicted.astype(int) == test.labels[members]).mean()
    assert accuracy == pytest.approx(result["tasks"][-1]["accuracy"]["classifier"])


def test_network_is_loaded_with_its_factors() -> None:
    def network() -> Network:
        return build_network("lucir-resnet", 8, 1, "il2m", 1, torch.Generator().manual_seed(1))

    trained, images = network(), torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    for classes in (2, 3):
        trained.head.grow(trained.head.init_weights(classes, torch.Generator().manual_seed(classes)))
    trained.head.rectify(torch.tensor([30.0, 20.0]))  # type: ignore[operator]
    fresh = network()
    fresh.load(trained.state_dict())
    assert torch.equal(fresh.eval()(images).scores, trained.eval()(images).scores)
    assert not torch.equal(fresh.eval()(images).scores, fresh.train()(images).scores)
