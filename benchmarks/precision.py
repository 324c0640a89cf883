"""Training in 16-bit precision: an epoch of LUCIR+CSCCT, with teacher and data, relative to 32 bits.

Faster on processors with instructions for it (AVX512-BF16, AMX); others emulate them.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from parts import Listener, Size, after_first_task, second_task_dataset

KINDS = ("32-true", "bf16-mixed")


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Return images per second of each epoch, the precisions in turns, without the first epoch of each."""
    dataset = second_task_dataset(size)
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(size.rounds):
        for kind in KINDS:
            learner, _ = after_first_task("lucir+cscct", size, dataset, numerics={"precision": kind})
            listener = Listener()
            learner.learn(learner.stream.tasks[1], listener)
            rates[kind] += listener.rates[1:] or listener.rates
            say(f"{kind}: {listener.rates[-1]:.0f} images a second")
    return {"images per second": rates, "instructions": torch.cpu._is_avx512_bf16_supported()}


def ratios(results: dict[str, Any]) -> dict[str, float]:
    slow, fast = (median(results["images per second"][kind]) for kind in KINDS)
    return {"LUCIR+CSCCT epoch, 32 bits / bf16": fast / slow}
