"""In which precision networks compute. Losses raise what they are given to 32 bits at least."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

Precision = Callable[[], AbstractContextManager[Any]]  # a context for the forward passes
FULL: Precision = nullcontext


def precision_of(name: str, device: torch.device) -> Precision:
    """`32-true`, or `bf16-mixed`: weights keep 32 bits, products have 16."""
    if name == "32-true":
        return FULL
    return lambda: torch.autocast(device.type, torch.bfloat16)
