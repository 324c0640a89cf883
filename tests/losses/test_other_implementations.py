"""CSC and CT as other libraries define them: Mammoth's sum, and CLearning's, which equals it on complete batches.

Both write CSC as the mean over all pairs of sign times one minus cosine, and CT as torch's element mean of
`target (log target - input)` with the tasks of labels deciding which samples are new. Written in loops from the
formulas in docs/fidelity.md.
"""

import math

import numpy as np
import pytest
import torch

from cscct.losses import controlled_transfer, cross_space_clustering
from oracles import cosine, softmax

Array = np.ndarray


def signed_mean(student: Array, teacher: Array, labels: Array) -> float:
    """CSC: the mean over all ordered pairs of ±(1 − cosine)."""
    pairs = [(i, j) for i in range(len(labels)) for j in range(len(labels))]
    values = [(1 - cosine(student[i], teacher[j])) * (1 if labels[i] == labels[j] else -1) for i, j in pairs]
    return math.fsum(values) / len(pairs)


def element_mean(student: Array, teacher: Array, tasks: Array, current: int, temperature: float) -> float:
    """CT: torch's KLDivLoss with its default reduction, the mean over all elements, times the squared temperature."""
    new, old = np.flatnonzero(tasks == current), np.flatnonzero(tasks < current)
    terms = []
    for i in new:
        log_student = np.log(softmax(np.array([cosine(student[i], student[j]) for j in old]) / temperature))
        target = softmax(np.array([cosine(teacher[i], teacher[j]) for j in old]) / temperature)
        terms += [t * (math.log(t) - s) for t, s in zip(target, log_student, strict=True)]
    return math.fsum(terms) / len(terms) * temperature**2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("alpha", "beta", "temperature"), [(3.0, 1.5, 2.0), (0.3, 10.0, 0.1)])
def test_mammoth(seed: int, alpha: float, beta: float, temperature: float) -> None:
    """Mammoth concatenates the batch with one from its buffer; the defaults of its weights are 3, 1.5 and T = 2."""
    rng = np.random.default_rng(seed)
    current, classes_per_task = 2, 5
    stream, buffer = rng.integers(10, 15, 8), rng.integers(0, 10, 6)
    labels = np.concatenate([stream, buffer])
    student, teacher = rng.normal(size=(2, len(labels), 7))
    tasks = labels // classes_per_task
    slow = alpha * signed_mean(student, teacher, labels)
    slow += beta * element_mean(student, teacher, tasks, current, temperature)
    features, reference, targets = (torch.from_numpy(a) for a in (student, teacher, labels))
    fast = alpha * cross_space_clustering(features, reference, targets)
    fast = fast + beta * controlled_transfer(features, reference, targets >= 10, temperature, "official")
    assert fast.item() == pytest.approx(slow, abs=1e-6)
    other = beta * controlled_transfer(features, reference, targets >= 10, temperature, "batchmean")
    assert other.item() == pytest.approx(6 * beta * element_mean(student, teacher, tasks, current, temperature))
