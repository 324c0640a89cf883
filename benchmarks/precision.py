"""Training in 16-bit precision: an epoch of LUCIR+CSCCT, with teacher and data, relative to 32 bits.

Faster on processors with instructions for it (AVX512-BF16, AMX); others emulate them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from cscct.learn import precision
from parts import Listener, Size, after_first_task, second_task_dataset

KINDS = ("32-true", "bf16-mixed")


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Return images per second of each epoch, the precisions in turns, without the first epoch of each."""
    dataset, size = second_task_dataset(size), replace(size, epochs=min(2, size.rounds), rounds=min(2, size.rounds))
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(size.rounds):
        for kind in KINDS:
            learner, _ = after_first_task("lucir+cscct", size, dataset, numerics={"precision": kind})
            listener = Listener()
            learner.learn(learner.stream.tasks[1], listener)
            rates[kind] += listener.rates[1:] or listener.rates
            say(f"{kind}: {listener.rates[-1]:.0f} images a second")
    _, settings = after_first_task("lucir+cscct", size, dataset)
    with TemporaryDirectory() as folder, patch.object(precision, "user_cache_dir", lambda: Path(folder)):
        started = time.perf_counter()
        chosen = precision.choose_precision(settings, dataset)
        seconds = time.perf_counter() - started
    say(f"auto: {chosen}, chosen in {seconds:.1f} s")
    instructions = torch.cpu._is_avx512_bf16_supported()
    return {"images per second": rates, "instructions": instructions, "auto": chosen, "auto, s": seconds}


def ratios(results: dict[str, Any]) -> dict[str, float]:
    slow, fast = (median(results["images per second"][kind]) for kind in KINDS)
    figures = {"LUCIR+CSCCT epoch, 32 bits / bf16": fast / slow}
    if "auto" in results:
        auto = median(results["images per second"][results["auto"]])
        figures |= {"LUCIR+CSCCT epoch, auto / best": auto / max(slow, fast), "choice of auto, s": results["auto, s"]}
    return figures
