"""Exemplar memory."""

import numpy as np
import pytest
import torch

from cscct.memory import HERDINGS, Memory, herd
from cscct.specs import MemorySpec


def test_shrinking_keeps_the_first_ranks() -> None:
    memory = Memory(MemorySpec(policy="total", total=12))
    features = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 4)) + 0.5)
    indices = list(range(100, 130))
    for label in (0, 1):
        memory.keep(label, indices, features, classes_seen=2)
        memory.stored[label] = torch.arange(6)[:, None]
    ranked = [indices[rank] for rank in herd(features, 6)]
    assert memory.exemplars == {0: ranked, 1: ranked}
    for seen, quota in ((3, 4), (5, 2), (12, 1), (100, 1)):
        memory.shrink(seen)
        assert memory.exemplars == {0: ranked[:quota], 1: ranked[:quota]}
        assert [rows.flatten().tolist() for rows in memory.stored.values()] == [list(range(quota))] * 2
    memory.shrink(2)  # removed exemplars do not return
    assert memory.exemplars == {0: ranked[:1], 1: ranked[:1]}


@pytest.mark.parametrize("form", HERDINGS)
def test_quota_per_class_is_constant(form: str) -> None:
    memory = Memory(MemorySpec(per_class=3, herding=form))
    for label, n in enumerate((10, 2)):
        features = torch.from_numpy(np.random.default_rng(label).normal(size=(n, 4)) + 0.5)
        indices = list(range(50 * label, 50 * label + n))
        memory.keep(label, indices, features, classes_seen=99)
        assert memory.exemplars[label] == [indices[rank] for rank in herd(features, 3, form)]
    before = dict(memory.exemplars)
    memory.shrink(99)
    assert memory.exemplars == before
