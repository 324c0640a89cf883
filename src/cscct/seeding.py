"""Random number generators keyed by seed and purpose.

No generator state is stored: a run can be resumed at any step.
"""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *key: str | int) -> int:
    """Return a 63-bit seed that depends on a seed and a key.

    Args:
        seed: Seed of the run.
        *key: Purpose of the random numbers, for example task, epoch and name.
    """
    digest = hashlib.sha256(repr((seed, *key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *key: str | int) -> torch.Generator:
    """Return a generator with a seed that depends on a seed and a key.

    Args:
        seed: Seed of the run.
        *key: Purpose of the random numbers, for example task, epoch and name.
    """
    return torch.Generator().manual_seed(derive(seed, *key))
