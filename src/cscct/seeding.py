"""All randomness comes from generators keyed by what they are for, so that any point of a run can be reached again
without stored state."""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *key: str | int) -> int:
    """A 63-bit number that depends on the seed and on every part of the key."""
    digest = hashlib.sha256(repr((seed, *key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *key: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, *key))
