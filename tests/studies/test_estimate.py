"""How long a run may take."""

from __future__ import annotations

import pytest

from conftest import settings_for
from cscct.studies.estimate import _multiplications, seconds


def test_estimates_grow_with_the_work() -> None:
    def total(*sets: str, method: str = "lucir", dataset: str = "cifar100") -> float:
        found = seconds(settings_for(method, dataset, "runtime.threads=1", *sets))
        assert found is not None
        return sum(found)

    whole = total()
    assert total("train.epochs=80") == pytest.approx(whole / 2, rel=0.03)
    assert total("data.train_per_class=250", "memory.per_class=10") == pytest.approx(whole / 2, rel=0.03)
    assert total("network.depth=8") < whole / 4
    assert total("protocol.step=1") > whole
    assert total("runtime.threads=2") == pytest.approx(whole / 2, rel=0.05)
    assert total(method="podnet") > whole
    assert total(dataset="imagenet-subset") > 20 * whole
    assert seconds(settings_for("lucir", "folder")) is None


def test_multiplications_are_those_of_the_networks() -> None:
    """Of ResNet-32 at 32 pixels 69 million, of ResNet-18 at 224 pixels 1.8 thousand million."""
    assert _multiplications(settings_for("lucir", "cifar100"), 32) == pytest.approx(69e6, rel=0.02)
    assert _multiplications(settings_for("lucir", "imagenet-subset"), 224) == pytest.approx(1.8e9, rel=0.06)


def test_small_networks_are_not_free() -> None:
    """Digits with 20 epochs: about two seconds of training a task, though the multiplications take a tenth of that."""
    found = seconds(settings_for("lucir", "digits", "runtime.threads=1"))
    assert found is not None
    first, rest = found
    assert 1 < first < 10
    assert first < rest < 30
